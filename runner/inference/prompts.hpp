// The prompts of a request, encoded.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/chat/chat_template.hpp"
#include "runner/inference/request.hpp"

namespace runner {

struct Prompt {
  nlohmann::ordered_json id = nullptr;  ///< that of the record, or its number from 0
  std::string text = {};                ///< as the model reads it
  std::vector<int32_t> tokens = {};
  bool of_messages = false;  ///< made by the chat template
  bool answered = false;     ///< the record had an answer behind these messages, which is left out
  int64_t dropped = 0;       ///< tokens that were cut off at its beginning, because they did not fit
};

/// Turns texts and records into prompts of one model.
class PromptReader {
 public:
  PromptReader(const PromptsRequest& request, const StoredModel& model, const Tokenizer& tokenizer);
  /// All prompts of the request. Throws Error(usage) with file and line for a bad record, and without any prompt.
  std::vector<Prompt> read() const;
  /// A prompt with these messages.
  Prompt of_messages(const nlohmann::ordered_json& messages) const;
  Prompt of_text(const std::string& text) const;
  /// Adds what ends a message of the assistant in the chat template to the ends of generated texts. Without a template, nothing.
  void add_end_of_turn(GenerationSettings& settings) const;

 private:
  Prompt of_record(const nlohmann::ordered_json& record) const;

  PromptsRequest request_;
  const Tokenizer& tokenizer_;
  bool special_tokens_;  ///< texts get the tokens that the tokenizer puts around a text
  std::optional<chat::ChatTemplate> template_;
  std::string no_template_;  ///< why there is none
};

/// Cuts off the beginning of a prompt that leaves no place for new tokens: keeps the last `max_seq_len` - min(`new_tokens`, half of
/// `max_seq_len`).
void fit_prompt(Prompt& prompt, int64_t max_seq_len, int64_t new_tokens);

}  // namespace runner
