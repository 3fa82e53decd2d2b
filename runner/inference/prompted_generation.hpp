// The texts that a language model generates for the prompts of a request, in batches.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runner/inference/generator.hpp"
#include "runner/inference/verbs.hpp"

namespace runner {

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
  /// In the order of the prompts. `of_batch`: the times of the batch that the text was in.
  std::function<void(const WantedText& wanted, const GeneratedText& text, const GenerationTimes& of_batch)> ended = {};
};

class PromptedGeneration {
 public:
  /// Reads the prompts. Texts that answer messages end where the chat template ends a message. `default_new_tokens`: if nobody sets
  /// max_new_tokens. Throws Error(usage) for a bad prompt or setting.
  PromptedGeneration(InferenceJob& job, int64_t default_new_tokens);

  size_t prompts() const { return prompts_.size(); }
  /// Generates request.num_samples texts for each prompt, request.batch_size at once.
  GenerationTimes run(const TextListener& listener);

 private:
  InferenceJob& job_;
  GenerationSettings settings_;
  std::vector<Prompt> prompts_;
};

}  // namespace runner
