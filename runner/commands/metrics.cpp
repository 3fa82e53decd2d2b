// `runner metrics`.
#include "runner/commands/command.hpp"

namespace runner {

Action setup_metrics(CLI::App&) {
  return [] { return ExitCode::usage; };
}

}  // namespace runner
