// `runner run`.
#include "runner/commands/command.hpp"

namespace runner {

Action setup_run(CLI::App&) {
  return [] { return ExitCode::usage; };
}

}  // namespace runner
