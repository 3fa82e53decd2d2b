// `runner ls`.
#include "runner/commands/command.hpp"

namespace runner {

Action setup_ls(CLI::App&) {
  return [] { return ExitCode::usage; };
}

}  // namespace runner
