#include "runner/inference/worker.hpp"

#include <unistd.h>

#include "runner/base/log.hpp"
#include "runner/data/data.hpp"
#include "runner/inference/line_output.hpp"
#include "runner/inference/loaded_model.hpp"
#include "runner/inference/request.hpp"
#include "runner/inference/verbs.hpp"
#include "strategies/contract/failure.hpp"

namespace runner {

namespace {

/// Null if the model has none, which only the loss on validation data allows.
std::unique_ptr<Tokenizer> tokenizer_of(const StoredModel& model, const InferenceRequest& request) {
  if (model.recipe.data.has_token_ids() && request.verb == "evaluate" && request.task.empty()) return nullptr;
  if (model.recipe.data.has_token_ids())
    throw usage_error(
        "the run trained on tokens (data.format = \"{}\"), so it has no tokenizer: export it with `runner export`, and "
        "add a tokenizer to the folder",
        model.recipe.data.format);
  return open_model_tokenizer(model, request.load.cache_dir);
}

ExitCode run_language_verb(InferenceRequest request, StoredModel stored, EventSink& events) {
  if (request.verb == "predict") {
    if (request.files.size() != 1)
      throw usage_error("a language model reads one file of records, and here are {}", request.files.size());
    request.prompts.file = request.files.front();
  }
  LanguageModel model(request.load, std::move(stored));
  auto tokenizer = tokenizer_of(model.stored(), request);
  InferenceJob job{
      .request = std::move(request), .model = std::move(model), .tokenizer = std::move(tokenizer), .events = events};
  const auto& verb = job.request.verb;
  if (verb == "generate") return generate_texts(job);
  if (verb == "chat") return hold_chat(job);
  if (verb == "evaluate") return evaluate_model(job);
  return predict_texts(job);
}

ExitCode run_verb(const InferenceRequest& request, EventSink& events) {
  if (request.input >= 0) ::dup2(request.input, STDIN_FILENO);
  auto stored = open_stored_model(request.load.place());
  if (request.verb == "embed") return embed_texts(request, std::move(stored), events);
  if (!stored.spec.task) return run_language_verb(request, std::move(stored), events);
  if (request.verb == "evaluate") return evaluate_labels(request, std::move(stored), events);
  if (request.verb == "predict") return predict_labels(request, std::move(stored), events);
  throw usage_error(
      "{} has a model of the family {}, which predicts labels or numbers: `runner predict` and `runner evaluate` use "
      "it, and `runner {}` is for language models",
      request.load.name, stored.recipe.model.name, request.verb);
}

}  // namespace

void report_progress(EventSink& events, int64_t done, int64_t all) {
  events.emit("progress", {{"done", done}, {"of", all}});
}

void fit_with_warning(Prompt& prompt, int64_t max_seq_len, int64_t new_tokens) {
  fit_prompt(prompt, max_seq_len, new_tokens);
  if (prompt.dropped > 0)
    log::warning("{} has {} tokens, and the model's max_seq_len is {}: its first {} tokens are left out",
                 prompt.id.is_null() ? "the message" : "prompt " + prompt.id.dump(),
                 std::ssize(prompt.tokens) + prompt.dropped, max_seq_len, prompt.dropped);
}

ExitCode run_inference_worker(int request) {
  EventSink events(/*rank=*/0);
  InferenceRequest wanted{.verb = ""};
  try {
    wanted = request_in(request);
    return run_verb(wanted, events);
  } catch (const std::exception& error) {
    auto failure = failure_of(error);
    failure.message = with_options_for_keys(wanted, failure.message);
    if (std::getenv("RUNNER_EVENT_FD"))
      events.emit("failed",
                  {{"kind", failure.kind}, {"code", static_cast<int>(failure.code)}, {"message", failure.message}});
    else if (failure.message != closed_output)
      log::error("{}", failure.message);
    return failure.code;
  }
}

}  // namespace runner
