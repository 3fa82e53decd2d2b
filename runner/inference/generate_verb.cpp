// The texts that a language model generates for the prompts of a request: `runner generate` prints them, and `runner predict` writes one
// JSON line for each record of a file, in its order.
#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/inference/generator.hpp"
#include "runner/inference/verbs.hpp"

namespace runner {

namespace {

/// Sample `sample` of a prompt.
struct WantedText {
  const Prompt* prompt = nullptr;
  uint64_t number = 0;  ///< among all texts; decides what is drawn
  int64_t sample = 0;
};

/// The functions that are called while texts are generated: `begins` and `grows` with batches of one text only; they may be empty.
struct TextListener {
  std::function<void(const WantedText& wanted)> begins = {};
  std::function<void(const std::string& text)> grows = {};
  /// Called in the order of the prompts. `of_batch`: the times of the batch that the text was in.
  std::function<void(const WantedText& wanted, const GeneratedText& text, const GenerationTimes& of_batch)> ended = {};
};

class PromptedGeneration {
 public:
  /// Reads the prompts. Texts that answer messages end where the chat template ends a message. `default_new_tokens`: if nobody sets
  /// max_new_tokens. Throws Error(usage) for a bad prompt or setting.
  PromptedGeneration(InferenceJob& job, int64_t default_new_tokens)
      : job_(job),
        settings_(generation_settings(job.request.generation, job.model.stored().folder, *job.tokenizer,
                                      default_new_tokens)) {
    const PromptReader reader(job.request.prompts, job.model.stored(), *job.tokenizer);
    prompts_ = reader.read();
    if (std::ranges::any_of(prompts_, &Prompt::of_messages)) reader.add_end_of_turn(settings_);
    for (auto& prompt : prompts_) fit_with_warning(prompt, job.model.max_seq_len(), settings_.max_new_tokens);
  }

  size_t prompts() const { return prompts_.size(); }
  /// Generates request.num_samples texts for each prompt, request.batch_size at once.
  GenerationTimes run(const TextListener& listener) {
    const auto& request = job_.request;
    std::vector<WantedText> all;
    for (const auto& prompt : prompts_)
      for (int64_t sample = 0; sample < request.num_samples; ++sample) all.push_back({&prompt, all.size(), sample});
    GenerationTimes times;
    const auto batch_size = static_cast<size_t>(request.batch_size);
    for (size_t first = 0; first < all.size(); first += batch_size) {
      const std::span batch(all.begin() + static_cast<ptrdiff_t>(first), std::min(batch_size, all.size() - first));
      std::vector<GenerationStart> starts;
      for (const auto& wanted : batch) starts.push_back({.tokens = wanted.prompt->tokens, .sample = wanted.number});
      if (batch_size == 1 && listener.begins) listener.begins(batch.front());
      Generator generator(job_.model, *job_.tokenizer, settings_, static_cast<uint64_t>(request.seed));
      const auto texts = generator.run(starts, [&](size_t, const std::string& text) {
        if (batch_size == 1 && listener.grows) listener.grows(text);
      });
      times.add(generator.times());
      for (size_t i = 0; i < batch.size(); ++i) listener.ended(batch[i], texts[i], generator.times());
      report_progress(job_.events, static_cast<int64_t>(first + batch.size()), std::ssize(all));
    }
    return times;
  }

 private:
  InferenceJob& job_;
  GenerationSettings settings_;
  std::vector<Prompt> prompts_;
};

nlohmann::ordered_json json_of(const WantedText& wanted, const GeneratedText& text, const GenerationTimes& batch) {
  nlohmann::ordered_json line{{"schema", 1},
                              {"id", wanted.prompt->id},
                              {"sample", wanted.sample},
                              {"prompt", wanted.prompt->text},
                              {"text", text.text},
                              {"finish_reason", text.finish},
                              {"prompt_tokens", wanted.prompt->tokens.size()},
                              {"tokens", text.tokens.size()}};
  if (batch.tokens > 0) line["tokens_per_s"] = static_cast<double>(batch.tokens) / batch.token_seconds;
  if (wanted.prompt->dropped > 0) line["prompt_tokens_dropped"] = wanted.prompt->dropped;
  return line;
}

std::string heading(const WantedText& wanted, bool prompts, bool samples) {
  std::string words = prompts ? "prompt " + wanted.prompt->id.dump() : "";
  if (samples) words += fmt::format("{}sample {}", words.empty() ? "" : ", ", wanted.sample);
  return words.empty() ? "" : "=== " + words + "\n";
}

void report_speed(const GenerationTimes& times) {
  if (times.tokens == 0) return;
  log::info("{} read in {}, {} drawn in {}: {:.1f} tokens/s", counted(times.prompt_tokens, "token"),
            format_duration(times.prompt_seconds), counted(times.tokens, "more token"),
            format_duration(times.token_seconds), static_cast<double>(times.tokens) / times.token_seconds);
}

}  // namespace

ExitCode generate_texts(InferenceJob& job) {
  const auto& request = job.request;
  PromptedGeneration generation(job, generate_new_tokens);
  const bool streams = request.batch_size == 1 && !request.json;
  const auto begin = [&](const WantedText& wanted) {
    return heading(wanted, generation.prompts() > 1, request.num_samples > 1) +
           (request.echo ? wanted.prompt->text : "");
  };
  TextListener listener;
  listener.ended = [&](const WantedText& wanted, const GeneratedText& text, const GenerationTimes& of_batch) {
    if (request.json)
      print_now(line_of(json_of(wanted, text, of_batch)));
    else
      print_now(streams ? "\n" : begin(wanted) + text.text + "\n");
  };
  if (streams) {
    listener.begins = [&](const WantedText& wanted) { print_now(begin(wanted)); };
    listener.grows = [](const std::string& text) { print_now(text); };
  }
  report_speed(generation.run(listener));
  return ExitCode::done;
}

ExitCode predict_texts(InferenceJob& job) {
  PromptedGeneration generation(job, predict_new_tokens);
  LineOutput lines(job.request.output);
  TextListener listener;
  listener.ended = [&](const WantedText& wanted, const GeneratedText& text, const GenerationTimes&) {
    lines.add({{"id", wanted.prompt->id},
               {"prompt", wanted.prompt->text},
               {"prediction", text.text},
               {"finish_reason", text.finish},
               {"tokens", text.tokens.size()}});
  };
  const auto times = generation.run(listener);
  lines.finish();
  job.events.emit(
      "result",
      {{"metrics",
        {{"records", generation.prompts()},
         {"prompt_tokens", times.prompt_tokens},
         {"tokens_per_s", times.tokens > 0 ? static_cast<double>(times.tokens) / times.token_seconds : 0.0}}}});
  return ExitCode::done;
}

}  // namespace runner
