// One sample of chat or instruction data in its normal form, and the error of a bad record.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

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

}  // namespace runner::chat
