// `runner-worker`: trains one rank, or runs a trained model. `runner` starts it. It links LibTorch.
#include <torch/version.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "runner/inference/worker.hpp"
#include "runner/train/calibrate.hpp"
#include "runner/train/compiled_memory.hpp"
#include "runner/train/parts/accelerator.hpp"
#include "runner/train/parts/precision.hpp"
#include "runner/train/parts/torch_library.hpp"
#include "runner/train/plugin_description.hpp"
#include "runner/train/profile_answers.hpp"
#include "runner/train/worker.hpp"
#include "strategies/collective/quick_end.hpp"
#include "strategies/contract/float32_products.hpp"

int main(int argc, char** argv) {
  runner::end_quickly();
  runner::WorkerOptions options;
  runner::choose_float32_products();
  std::signal(SIGXFSZ, SIG_IGN);  // writing beyond the limit of file sizes (ulimit -f) fails instead
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--version") {
      std::printf("runner-worker %s, LibTorch %s\n", RUNNER_VERSION, TORCH_VERSION);
      return 0;
    }
    if (argument == "--calibrate" && i + 1 < argc)
      return static_cast<int>(runner::run_calibration(std::atof(argv[++i])));
    if (argument == "--infer" && i + 1 < argc)
      return static_cast<int>(runner::run_inference_worker(std::atoi(argv[++i])));
    if (argument == "--describe-plugin" && i + 2 < argc)
      return runner::answer_request(runner::describe_plugin, argv[i + 1], argv[i + 2]);
    if (argument == "--describe-precision" && i + 2 < argc)
      return runner::answer_request(runner::describe_precision, argv[i + 1], argv[i + 2]);
    if (argument == "--describe-accelerator" && i + 2 < argc)
      return runner::answer_request(runner::describe_accelerator, argv[i + 1], argv[i + 2]);
    if (argument == "--profiles" && i + 1 < argc) return runner::answer_profile_questions(argv[i + 1]);
    if (argument == "--compiled-memory" && i + 2 < argc)
      return runner::answer_request(runner::describe_compiled_memory, argv[i + 1], argv[i + 2]);
    if (argument == "--run-dir" && i + 1 < argc)
      options.run_dir = argv[++i];
    else if (argument == "--accept-changed-data")
      options.accept_changed_data = true;
    else if (argument == "--attempt" && i + 1 < argc)
      options.attempt = std::atoll(argv[++i]);
    else if (argument == "--resume" && i + 1 < argc)
      options.resume_from = argv[++i];
    else if (argument == "--cache-dir" && i + 1 < argc)
      options.cache_dir = argv[++i];
    else {
      std::fprintf(stderr, "runner-worker is started by `runner run`; unknown argument %s\n", argument.c_str());
      return static_cast<int>(runner::ExitCode::usage);
    }
  }
  if (options.run_dir.empty()) {
    std::fprintf(stderr, "runner-worker is started by `runner run`\n");
    return static_cast<int>(runner::ExitCode::usage);
  }
  return static_cast<int>(runner::run_worker(options));
}
