// `runner strategies`.
#include "runner/commands/command.hpp"

namespace runner {

Action setup_strategies(CLI::App&) {
  return [] { return ExitCode::usage; };
}

}  // namespace runner
