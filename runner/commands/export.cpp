// `runner export`.
#include "runner/commands/command.hpp"

namespace runner {

Action setup_export(CLI::App&) {
  return [] { return ExitCode::usage; };
}

}  // namespace runner
