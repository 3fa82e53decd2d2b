// Runs the worker with a trained model: in the place of this process, or, for `evaluate`, `predict` and `embed`, as a child process that is
// recorded in the ledger as a run that belongs to the model's run.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runner/base/error.hpp"
#include "runner/commands/checkpoint_choice.hpp"
#include "runner/inference/request.hpp"

namespace runner {

/// The model on the command line, as the user writes it.
struct ModelOptions {
  std::string model = {};
  CheckpointChoice choice = {};
  std::optional<int64_t> threads = {};
  std::string accelerator = "auto";
};

/// Fills in `request.load`: finds the run, the checkpoint or the folder. Throws Error(usage) with the nearest names.
void find_model(const ModelOptions& options, InferenceRequest& request);

/// Replaces this process by the worker, which reads from and writes to the terminal itself.
[[noreturn]] void become_worker(const InferenceRequest& request);

struct InferenceResult {
  std::string run;                             ///< its id in the ledger
  std::string parent;                          ///< the run whose model it read; empty for a folder
  nlohmann::json metrics;                      ///< {name: number}
  std::vector<std::string> changed_data = {};  ///< evaluate: how the run's data differ from those that it trained on
};

/// Finds the model, makes the paths of files absolute, and runs the worker. Its texts go to stdout, its messages to stderr. Throws Error
/// with the code and message of a failure; then a run that had begun is recorded as failed.
InferenceResult run_inference(const ModelOptions& model, InferenceRequest& request);

/// Runs a verb that writes a line for each input. With --json, prints the summary. Says at the end how many `things` were made.
ExitCode write_lines_of(const ModelOptions& model, InferenceRequest& request, const std::string& things);

/// Prints the metrics to stdout: a table, or one line of JSON.
void print_result(const InferenceRequest& request, const InferenceResult& result);

}  // namespace runner
