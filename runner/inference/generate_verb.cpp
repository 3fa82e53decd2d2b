// `runner generate`: prints continuations of prompts.
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/inference/prompted_generation.hpp"
#include "runner/inference/verbs.hpp"

namespace runner {

namespace {

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

}  // namespace runner
