// `runner doctor`.
#include "runner/commands/command.hpp"

namespace runner {

Action setup_doctor(CLI::App&) {
  return [] { return ExitCode::usage; };
}

}  // namespace runner
