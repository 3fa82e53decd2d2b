// `runner generate`: prints continuations of prompts.
#include <cstdio>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/inference/generator.hpp"
#include "runner/inference/verbs.hpp"

namespace runner {

namespace {

constexpr int64_t generated_new_tokens = 256;

/// Sample `number` of a prompt.
struct Wanted {
  const Prompt* prompt;
  size_t index;
  int64_t number;
};

nlohmann::ordered_json json_of(const Wanted& wanted, const GeneratedText& text, const GenerationTimes& batch) {
  nlohmann::ordered_json line{{"schema", 1},
                              {"id", wanted.prompt->id},
                              {"sample", wanted.number},
                              {"prompt", wanted.prompt->text},
                              {"text", text.text},
                              {"finish_reason", text.finish},
                              {"prompt_tokens", wanted.prompt->tokens.size()},
                              {"tokens", text.tokens.size()}};
  if (batch.tokens > 0) line["tokens_per_s"] = static_cast<double>(batch.tokens) / batch.token_seconds;
  if (wanted.prompt->dropped > 0) line["prompt_tokens_dropped"] = wanted.prompt->dropped;
  return line;
}

std::string heading(const Wanted& wanted, bool prompts, bool samples) {
  std::string words = prompts ? "prompt " + wanted.prompt->id.dump() : "";
  if (samples) words += fmt::format("{}sample {}", words.empty() ? "" : ", ", wanted.number);
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
  auto settings =
      generation_settings(request.generation, job.model.stored().folder, *job.tokenizer, generated_new_tokens);
  const PromptReader reader(request.prompts, job.model.stored(), *job.tokenizer);
  auto prompts = reader.read();
  if (request.prompts.chat) reader.add_end_of_turn(settings);
  std::vector<Wanted> all;
  for (size_t i = 0; i < prompts.size(); ++i) {
    fit_with_warning(prompts[i], job.model.max_seq_len(), settings.max_new_tokens);
    for (int64_t number = 0; number < request.num_samples; ++number) all.push_back({&prompts[i], i, number});
  }
  GenerationTimes all_times;
  const auto batch_size = static_cast<size_t>(request.batch_size);
  const bool streams = batch_size == 1 && !request.json;
  const auto begin = [&](const Wanted& wanted) {
    return heading(wanted, prompts.size() > 1, request.num_samples > 1) + (request.echo ? wanted.prompt->text : "");
  };
  for (size_t first = 0; first < all.size(); first += batch_size) {
    const std::vector batch(all.begin() + static_cast<ptrdiff_t>(first),
                            all.begin() + static_cast<ptrdiff_t>(std::min(first + batch_size, all.size())));
    std::vector<GenerationStart> starts;
    for (const auto& wanted : batch)
      starts.push_back(
          {.tokens = wanted.prompt->tokens,
           .sample = wanted.index * static_cast<uint64_t>(request.num_samples) + static_cast<uint64_t>(wanted.number)});
    if (streams) print_now(begin(batch.front()));
    Generator generator(job.model, *job.tokenizer, settings, static_cast<uint64_t>(request.seed));
    const auto texts = generator.run(starts, [&](size_t, const std::string& text) {
      if (streams) print_now(text);
    });
    all_times.add(generator.times());
    for (size_t i = 0; i < batch.size(); ++i) {
      if (request.json)
        print_now(line_of(json_of(batch[i], texts[i], generator.times())));
      else
        print_now(streams ? "\n" : begin(batch[i]) + texts[i].text + "\n");
    }
  }
  report_speed(all_times);
  return ExitCode::done;
}

}  // namespace runner
