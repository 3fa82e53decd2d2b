// The layouts of chat and instruction data: what the keys of one JSON record mean.
//
//   messages           messages [{role, content, tool_calls}]; tools, documents, chat_template_kwargs    (OpenAI)
//   prompt-completion  prompt, completion: texts, or lists of messages; tools, documents, chat_template_kwargs
//   alpaca             instruction, output; input, system, history [[question, answer], ..]
//   sharegpt           conversations [{from, value}], from: human or user, gpt, chatgpt, bing, bard, assistant or model, system, tool,
//                      observation or function_response, function_call; system, tools
//   text               text
// Sources: the documentation of TRL, LLaMA-Factory, torchtune and axolotl.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runner/chat/conversation.hpp"

namespace runner::chat {

enum class Layout { messages, prompt_completion, alpaca, sharegpt, text };

/// The keys of a layout: the fields above -> the names of columns in the data. A field that is not in it has its own name.
using Columns = std::map<std::string, std::string>;

std::vector<std::string> layout_names();
std::string_view layout_name(Layout layout);
/// Raises Error with the nearest name.
Layout layout_of_name(std::string_view name);

/// Reads records of one layout.
class RecordReader {
 public:
  /// Raises Error if `columns` has a field that the layout has not.
  RecordReader(Layout layout, Columns columns = {});
  /// Finds the layout from the keys of the first record. Raises RecordError if none or several fit.
  static RecordReader detect(const Json& record, const Columns& columns = {});

  Layout layout() const { return layout_; }
  /// Raises RecordError.
  Conversation read(const Json& record) const;

 private:
  const Json* field(const Json& record, const std::string& name) const;
  const Json& needed(const Json& record, const std::string& name) const;
  std::string text_field(const Json& record, const std::string& name, bool required) const;
  std::string pointer(const std::string& name) const;
  void read_prompt_completion(Conversation& conversation, const Json& record) const;
  void read_alpaca(Conversation& conversation, const Json& record) const;
  void read_sharegpt(Conversation& conversation, const Json& record) const;

  Layout layout_;
  Columns columns_;
};

}  // namespace runner::chat
