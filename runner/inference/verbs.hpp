// What the worker does for each verb. Texts go to stdout.
#pragma once
#include <memory>

#include "runner/base/error.hpp"
#include "runner/inference/language_model.hpp"
#include "runner/inference/prompts.hpp"
#include "runner/launch/events.hpp"

namespace runner {

/// A loaded model with its tokenizer.
struct InferenceJob {
  InferenceRequest request;
  LanguageModel model;
  std::unique_ptr<Tokenizer> tokenizer;  ///< null: see tokenizer_of() in worker.cpp
  EventSink& events;
};

ExitCode generate_texts(InferenceJob& job);
ExitCode hold_chat(InferenceJob& job);
ExitCode evaluate_model(InferenceJob& job);
ExitCode predict_texts(InferenceJob& job);

/// Writes all of `text` to stdout at once, so that it is visible. Throws Error(environment) if nobody reads it.
void print_now(const std::string& text);

/// JSON on one line, also for texts that are not UTF-8.
std::string line_of(const nlohmann::ordered_json& json);
/// Cuts off the beginning of a prompt that does not fit, with a warning.
void fit_with_warning(Prompt& prompt, int64_t max_seq_len, int64_t new_tokens);

}  // namespace runner
