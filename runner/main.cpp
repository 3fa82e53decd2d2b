// `runner`: the command line program, and the processes in which data plug-ins run. It does not link LibTorch.
#include <csignal>
#include <string_view>

#include "runner/commands/front.hpp"
#include "runner/data/plugin/messages.hpp"

int main(int argc, char** argv) {
  // A launcher may ignore SIGCHLD. Then nobody would learn the exit codes of our child processes.
  std::signal(SIGCHLD, SIG_DFL);
  std::signal(SIGXFSZ, SIG_IGN);  // writing beyond the limit of file sizes (ulimit -f) fails instead
  if (argc == 2 && std::string_view(argv[1]) == runner::plugin_process_argument) return runner::serve_data_plugin();
  return runner::run_command_line(
      argc > 0 ? std::vector<std::string>(argv + 1, argv + argc) : std::vector<std::string>(), RUNNER_VERSION);
}
