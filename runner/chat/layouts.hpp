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
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runner/base/error.hpp"

namespace runner::chat {

using Json = nlohmann::ordered_json;

/// Something is wrong inside a record. what() is "POINTER: MESSAGE", e.g. "/messages/2/role: ..."; the caller prefixes "FILE:LINE: ".
class RecordError : public Error {
 public:
  /// `pointer` is a JSON pointer (RFC 6901); empty for the record itself.
  RecordError(std::string pointer, std::string message)
      : Error(ExitCode::usage, pointer.empty() ? message : pointer + ": " + message),
        pointer_(std::move(pointer)),
        message_(std::move(message)) {}
  const std::string& pointer() const { return pointer_; }
  const std::string& message() const { return message_; }

 private:
  std::string pointer_, message_;
};

/// One sample of chat or instruction data in its normal form.
struct Conversation {
  enum class Form {
    text,     ///< `text`
    pair,     ///< `prompt` and `completion`, which follow each other without a template
    messages  ///< `messages` for a template
  };
  Form form = Form::messages;
  std::string text = {}, prompt = {}, completion = {};
  /// [{"role", "content", "tool_calls"? ..}]: roles as `roles()` names them; contents are texts, or null beside tool calls; arguments of
  /// tool calls are objects, in which a binary value has the digits of a large integer. Other keys are kept for the template.
  Json messages = Json::array();
  /// The arguments of calls that the record gives as texts, by their places in `messages`.
  std::vector<std::pair<Json::json_pointer, std::string>> argument_texts = {};
  size_t prompt_messages = 0;  ///< of prompt-completion data: the first messages, which are the prompt
  Json tools = nullptr, documents = nullptr;
  Json variables = Json::object();  ///< chat_template_kwargs: more variables for the template
};

/// system, developer, user, assistant, tool.
const std::vector<std::string>& roles();
/// Adds the messages of a record in normal form: checks roles, contents and tool calls, joins text parts, parses arguments. `pointer`
/// is the place of the list. Raises RecordError.
void add_messages(Conversation& conversation, const Json& messages, const std::string& pointer);
/// A list of tools; also a text that contains its JSON. Null stays null. Raises RecordError.
Json checked_tools(const Json& tools, const std::string& pointer);
/// "a string", "a list": the JSON type in words.
std::string type_words(const Json& value);

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
