// Runs the worker for `evaluate` and `predict`, and records it in the ledger as a run that belongs to the model's run.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "runner/inference/request.hpp"

namespace runner {

struct InferenceResult {
  std::string run;         ///< its id in the ledger
  std::string parent;      ///< the run whose model it read; empty for a folder
  nlohmann::json metrics;  ///< {name: number}
};

/// The worker's texts go to stdout, its messages to stderr. Throws Error with the code and message of a failure; then a run that had
/// begun is recorded as failed.
InferenceResult run_inference(const InferenceRequest& request);

/// Prints the metrics to stdout: a table, or one line of JSON.
void print_result(const InferenceRequest& request, const InferenceResult& result);

}  // namespace runner
