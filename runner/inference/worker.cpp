#include "runner/inference/worker.hpp"

#include <csignal>
#include <cstdio>

#include "runner/base/log.hpp"
#include "runner/data/data.hpp"
#include "runner/inference/verbs.hpp"

namespace runner {

namespace {

/// Null if the model has none, which only the loss on validation data allows.
std::unique_ptr<Tokenizer> tokenizer_of(const StoredModel& model, const InferenceRequest& request) {
  if (model.recipe.data.format == "bin" && request.verb == "evaluate" && request.task.empty()) return nullptr;
  if (model.recipe.data.format == "bin")
    throw usage_error(
        "the run trained on tokens (data.format = \"bin\"), so it has no tokenizer: export it with `runner export`, "
        "and "
        "add a tokenizer to the folder");
  try {
    return make_tokenizer(model.recipe.data, request.load.cache_dir);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("the model needs its tokenizer: {}", error.what()));
  }
}

ExitCode run_verb(InferenceJob& job) {
  const auto& verb = job.request.verb;
  if (verb == "generate") return generate_texts(job);
  if (verb == "chat") return hold_chat(job);
  if (verb == "evaluate") return evaluate_model(job);
  if (verb == "predict") return predict_texts(job);
  throw usage_error("unknown verb `{}`", job.request.verb);
}

}  // namespace

void print_now(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw environment_error("the output cannot be written");
}

std::string line_of(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void fit_with_warning(Prompt& prompt, int64_t max_seq_len, int64_t new_tokens) {
  fit_prompt(prompt, max_seq_len, new_tokens);
  if (prompt.dropped > 0)
    log::warning("prompt {} has {} tokens, and the model's max_seq_len is {}: its first {} tokens are left out",
                 prompt.id.dump(), std::ssize(prompt.tokens) + prompt.dropped, max_seq_len, prompt.dropped);
}

ExitCode run_inference_worker(const std::string& text) {
  EventSink events(/*rank=*/0);
  const auto fail = [&](ExitCode code, const std::string& message) {
    if (std::getenv("RUNNER_EVENT_FD"))
      events.emit("failed", {{"kind", code == ExitCode::usage ? "usage" : "error"}, {"message", message}});
    else
      log::error("{}", message);
    return code;
  };
  try {
    auto request = inference_request(text);
    LanguageModel model(request.load);
    auto tokenizer = tokenizer_of(model.stored(), request);
    InferenceJob job{
        .request = std::move(request), .model = std::move(model), .tokenizer = std::move(tokenizer), .events = events};
    return run_verb(job);
  } catch (const Error& error) {
    return fail(error.code(), error.what());
  } catch (const c10::Error& error) {
    return fail(ExitCode::run_failed, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail(ExitCode::run_failed, error.what());
  }
}

}  // namespace runner
