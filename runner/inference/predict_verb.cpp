// `runner predict`: one JSON line for each record of a file, in its order.
#include <cstdio>
#include <fstream>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/inference/generator.hpp"
#include "runner/inference/verbs.hpp"

namespace runner {

namespace {

constexpr int64_t predicted_new_tokens = 256;

/// The lines go to a file, which appears when it is complete, or to stdout.
class Lines {
 public:
  explicit Lines(const std::string& file) : file_(file) {}
  void add(const nlohmann::ordered_json& line) {
    file_.empty() ? print_now(line_of(line)) : void(text_ += line_of(line));
  }
  void finish() const {
    if (!file_.empty()) write_file_atomic(file_, text_);
  }

 private:
  std::string file_, text_;
};

}  // namespace

ExitCode predict_texts(InferenceJob& job) {
  const auto& request = job.request;
  auto settings =
      generation_settings(request.generation, job.model.stored().folder, *job.tokenizer, predicted_new_tokens);
  const PromptReader reader(request.prompts, job.model.stored(), *job.tokenizer);
  auto prompts = reader.read();
  reader.add_end_of_turn(settings);
  for (auto& prompt : prompts) fit_with_warning(prompt, job.model.max_seq_len(), settings.max_new_tokens);
  Generator generator(job.model, *job.tokenizer, settings, static_cast<uint64_t>(request.seed));
  Lines lines(request.output);
  const auto step = static_cast<size_t>(request.batch_size);
  for (size_t first = 0; first < prompts.size(); first += step) {
    std::vector<GenerationStart> starts;
    for (size_t i = first; i < std::min(first + step, prompts.size()); ++i)
      starts.push_back({.tokens = prompts[i].tokens, .sample = i});
    const auto texts = generator.run(starts, [](size_t, const std::string&) {});
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto& prompt = prompts[first + i];
      lines.add({{"id", prompt.id},
                 {"prompt", prompt.text},
                 {"prediction", texts[i].text},
                 {"finish_reason", texts[i].finish},
                 {"tokens", texts[i].tokens.size()}});
    }
    job.events.emit("progress", {{"done", first + texts.size()}, {"of", prompts.size()}});
  }
  lines.finish();
  const auto& times = generator.times();
  job.events.emit(
      "result",
      {{"metrics",
        {{"records", prompts.size()},
         {"prompt_tokens", times.prompt_tokens},
         {"tokens_per_s", times.tokens > 0 ? static_cast<double>(times.tokens) / times.token_seconds : 0.0}}}});
  return ExitCode::done;
}

}  // namespace runner
