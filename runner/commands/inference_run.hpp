// Runs the worker for `evaluate`, `predict` and `embed`, and records it in the ledger as a run that belongs to the model's run.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "runner/base/error.hpp"
#include "runner/commands/model_options.hpp"
#include "runner/inference/request.hpp"

namespace runner {

struct InferenceResult {
  std::string run;         ///< its id in the ledger
  std::string parent;      ///< the run whose model it read; empty for a folder
  nlohmann::json metrics;  ///< {name: number}
};

/// Finds the model, makes the paths of files absolute, and runs the worker. Its texts go to stdout, its messages to stderr. Throws Error
/// with the code and message of a failure; then a run that had begun is recorded as failed.
InferenceResult run_inference(const ModelOptions& model, InferenceRequest& request);

/// Runs a verb that writes a line for each input. With --json, prints the summary. Says at the end how many `things` were made.
ExitCode write_lines_of(const ModelOptions& model, InferenceRequest& request, const std::string& things);

/// Prints the metrics to stdout: a table, or one line of JSON.
void print_result(const InferenceRequest& request, const InferenceResult& result);

}  // namespace runner
