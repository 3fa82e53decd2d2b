// Generation: reads prompts, and draws one token after another.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runner/inference/loaded_model.hpp"
#include "runner/inference/sampling.hpp"
#include "runner/inference/text_stream.hpp"

namespace runner {

struct GeneratedText {
  std::vector<int32_t> tokens = {};  ///< without the token that ended it
  std::string text = {};
  /// Why it ended: "eos", "stop" (a stop text), "length" (max_new_tokens), "max_seq_len" or "interrupted".
  std::string finish = {};
};

/// A prompt, and the number of the sample, which decides what is drawn.
struct GenerationStart {
  std::vector<int32_t> tokens;
  uint64_t sample = 0;
};

/// A sequence that was read, for a prompt that begins with the same tokens.
struct ReadSequence {
  std::optional<KeyValueCache> cache;
  std::vector<int64_t> tokens;
};

struct GenerationTimes {
  double prompt_seconds = 0, token_seconds = 0;
  int64_t prompt_tokens = 0, tokens = 0;  ///< `tokens`: after the first one of each text
  int64_t reused_tokens = 0;              ///< of prompts, from a ReadSequence
  void add(const GenerationTimes& other) {
    prompt_seconds += other.prompt_seconds;
    token_seconds += other.token_seconds;
    prompt_tokens += other.prompt_tokens;
    tokens += other.tokens;
    reused_tokens += other.reused_tokens;
  }
};

class Generator {
 public:
  /// `text` is what became printable of sequence `row`.
  using OnText = std::function<void(size_t row, const std::string& text)>;
  Generator(const LanguageModel& model, const Tokenizer& tokenizer, GenerationSettings settings, uint64_t seed)
      : model_(model), tokenizer_(tokenizer), settings_(std::move(settings)), seed_(seed) {}

  /// The sequences are one batch, padded on the left. What is drawn for a prompt does not depend on the others, up to rounding.
  /// With rotations that change with the length (longrope), the longest sequence decides those of all, as in transformers.
  /// `read`: with one sequence only; reuses the tokens that both begin with, and keeps what was read.
  std::vector<GeneratedText> run(const std::vector<GenerationStart>& starts, const OnText& on_text,
                                 ReadSequence* read = nullptr);

  /// Ends the texts when it becomes true; may be set by a signal handler.
  void stop_when(const std::atomic<bool>* interrupted) { interrupted_ = interrupted; }
  const GenerationTimes& times() const { return times_; }

 private:
  const LanguageModel& model_;
  const Tokenizer& tokenizer_;
  GenerationSettings settings_;
  uint64_t seed_;
  const std::atomic<bool>* interrupted_ = nullptr;
  GenerationTimes times_;
};

}  // namespace runner
