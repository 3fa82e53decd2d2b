// `runner resume`.
#include "runner/commands/command.hpp"

namespace runner {

Action setup_resume(CLI::App&) {
  return [] { return ExitCode::usage; };
}

}  // namespace runner
