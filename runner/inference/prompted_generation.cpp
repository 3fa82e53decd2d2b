#include "runner/inference/prompted_generation.hpp"

#include <algorithm>
#include <span>

namespace runner {

PromptedGeneration::PromptedGeneration(InferenceJob& job, int64_t default_new_tokens)
    : job_(job),
      settings_(
          generation_settings(job.request.generation, job.model.stored().folder, *job.tokenizer, default_new_tokens)) {
  const PromptReader reader(job.request.prompts, job.model.stored(), *job.tokenizer);
  prompts_ = reader.read();
  if (std::ranges::any_of(prompts_, &Prompt::of_messages)) reader.add_end_of_turn(settings_);
  for (auto& prompt : prompts_) fit_with_warning(prompt, job.model.max_seq_len(), settings_.max_new_tokens);
}

GenerationTimes PromptedGeneration::run(const TextListener& listener) {
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

}  // namespace runner
