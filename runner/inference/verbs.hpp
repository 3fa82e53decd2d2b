// The functions of the worker for the verbs. Texts go to stdout.
#pragma once
#include <memory>

#include "runner/base/error.hpp"
#include "runner/inference/line_output.hpp"
#include "runner/inference/loaded_model.hpp"
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

/// These two are for models that predict labels or numbers.
ExitCode evaluate_labels(const InferenceRequest& request, StoredModel stored, EventSink& events);
ExitCode predict_labels(const InferenceRequest& request, StoredModel stored, EventSink& events);

/// Writes a vector for each text. The model is an encoder or a language model.
ExitCode embed_texts(const InferenceRequest& request, StoredModel stored, EventSink& events);

/// Tells the supervisor that `done` of `all` are done.
void report_progress(EventSink& events, int64_t done, int64_t all);

/// Cuts off the beginning of a prompt that does not fit, with a warning.
void fit_with_warning(Prompt& prompt, int64_t max_seq_len, int64_t new_tokens);

}  // namespace runner
