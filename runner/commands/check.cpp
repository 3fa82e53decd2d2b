// `runner check`.
#include "runner/commands/command.hpp"

namespace runner {

Action setup_check(CLI::App&) {
  return [] { return ExitCode::usage; };
}

}  // namespace runner
