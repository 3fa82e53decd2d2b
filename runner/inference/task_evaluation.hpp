// Tasks of `runner evaluate`: multiple choice, and the perplexity of whole documents.
#pragma once
#include "runner/inference/scored_text.hpp"
#include "runner/inference/verbs.hpp"

namespace runner {

/// Sends acc, acc_norm, acc_bytes and acc_tokens with standard errors. Writes a line for each record to request.output.
ExitCode evaluate_choices(InferenceJob& job);
/// Sends word_perplexity, byte_perplexity and bits_per_byte of documents. A file *.jsonl has a document in `text` (or `page`) of each
/// line; any other file is one document.
ExitCode evaluate_rolling(InferenceJob& job);

/// Adds the perplexity for each kind of unit that was counted, and the counts.
void add_perplexities(nlohmann::json& metrics, double log_probability, const TextSizes& sizes);

}  // namespace runner
