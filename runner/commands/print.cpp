// `runner print`.
#include "runner/commands/command.hpp"

namespace runner {

Action setup_print(CLI::App&) {
  return [] { return ExitCode::usage; };
}

}  // namespace runner
