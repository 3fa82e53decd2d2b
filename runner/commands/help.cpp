// `runner help`.
#include "runner/commands/command.hpp"

namespace runner {

Action setup_help(CLI::App&) {
  return [] { return ExitCode::usage; };
}

}  // namespace runner
