// `runner init`.
#include "runner/commands/command.hpp"

namespace runner {

Action setup_init(CLI::App&) {
  return [] { return ExitCode::usage; };
}

}  // namespace runner
