// `runner`: the command line program. It does not link LibTorch.
#include "runner/commands/front.hpp"

int main(int argc, char** argv) {
  return runner::run_command_line(
      argc > 0 ? std::vector<std::string>(argv + 1, argv + argc) : std::vector<std::string>(), RUNNER_VERSION);
}
