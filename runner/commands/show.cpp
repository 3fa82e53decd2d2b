// `runner show`.
#include "runner/commands/command.hpp"

namespace runner {

Action setup_show(CLI::App&) {
  return [] { return ExitCode::usage; };
}

}  // namespace runner
