#include "runner/chat/conversation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"

namespace runner::chat {
namespace {
/// The text of a content: a text, or a list of {"type": "text", "text"}.
Json checked_content(const Json& content, const std::string& pointer) {
  if (content.is_string() || content.is_null()) return content;
  if (!content.is_array())
    throw RecordError(pointer,
                      fmt::format("content must be a text or a list of text parts, not {}", type_words(content)));
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    auto& part = content[i];
    auto place = fmt::format("{}/{}", pointer, i);
    if (part.is_string()) {
      text += part.get<std::string>();
      continue;
    }
    if (!part.is_object())
      throw RecordError(place,
                        fmt::format("a part must be {{\"type\": \"text\", \"text\": ...}}, not {}", type_words(part)));
    auto type = part.value("type", Json());
    if (type != "text")
      throw RecordError(place + "/type", fmt::format("only parts of type \"text\" can be used, not {}", type.dump()));
    auto words = part.value("text", Json());
    if (!words.is_string())
      throw RecordError(place + "/text", fmt::format("must be a text, not {}", type_words(words)));
    text += words.get<std::string>();
  }
  return text;
}

/// {"type": "function", "function": {"name", "arguments"}}; `arguments` becomes an object, because templates write it as JSON.
Json checked_call(Json call, const std::string& pointer, std::string& written) {
  if (!call.is_object())
    throw RecordError(pointer, fmt::format("a tool call must be an object, not {}", type_words(call)));
  bool nested = call.contains("function");
  auto place = nested ? pointer + "/function" : pointer;
  auto& function = nested ? call["function"] : call;
  if (!function.is_object() || !function.value("name", Json()).is_string())
    throw RecordError(
        place, "a tool call needs a function with a name: {\"function\": {\"name\": ..., \"arguments\": {...}}}");
  auto& arguments = function["arguments"];
  if (arguments.is_string()) {
    written = arguments.get<std::string>();
    arguments = foreign_json<Json>(written, nullptr, /*all_digits=*/true);
    if (!arguments.is_object()) throw RecordError(place + "/arguments", "this text is not the JSON of an object");
  }
  if (arguments.is_null()) arguments = Json::object();
  if (!arguments.is_object())
    throw RecordError(place + "/arguments",
                      fmt::format("must be an object, or its JSON as a text, not {}", type_words(arguments)));
  if (nested) return call;
  return Json{{"type", "function"}, {"function", std::move(call)}};
}

Json checked_message(Json message, const std::string& pointer, Conversation& conversation) {
  if (!message.is_object())
    throw RecordError(
        pointer, fmt::format("a message must be an object {{\"role\", \"content\"}}, not {}", type_words(message)));
  auto role = message.value("role", Json());
  if (!role.is_string())
    throw RecordError(pointer + "/role", message.contains("role")
                                             ? fmt::format("must be a text, not {}", type_words(role))
                                             : "is missing");
  if (auto& known = roles(); std::find(known.begin(), known.end(), role.get<std::string>()) == known.end()) {
    auto near = nearest(role.get<std::string>(), known);
    throw RecordError(pointer + "/role",
                      fmt::format("unknown role \"{}\"{}; allowed: {}", role.get<std::string>(),
                                  near ? fmt::format(", did you mean {}?", *near) : "", join(known, ", ")));
  }
  bool calls = message.contains("tool_calls") && !message["tool_calls"].is_null();
  if (calls) {
    auto& list = message["tool_calls"];
    if (!list.is_array())
      throw RecordError(pointer + "/tool_calls", fmt::format("must be a list, not {}", type_words(list)));
    for (size_t i = 0; i < list.size(); ++i) {
      std::string written;
      list[i] = checked_call(list[i], fmt::format("{}/tool_calls/{}", pointer, i), written);
      if (written.empty()) continue;
      const auto place = fmt::format("/{}/tool_calls/{}/function/arguments", conversation.messages.size(), i);
      conversation.argument_texts.emplace_back(Json::json_pointer(place), std::move(written));
    }
    calls = !list.empty();
  }
  if (calls && message.value("content", Json()).is_null()) {  // Parquet files leave nulls out
    message["content"] = nullptr;
    return message;
  }
  if (!message.contains("content") || message["content"].is_null()) {
    if (role != "assistant") throw RecordError(pointer + "/content", "is missing");
    if (!message.contains("reasoning_content") && !message.contains("thinking") && !message.contains("reasoning"))
      throw RecordError(pointer + "/content", "is missing, and the message has no tool_calls");
    message["content"] = "";  // templates add it to texts
    return message;
  }
  message["content"] = checked_content(message["content"], pointer + "/content");
  return message;
}
}  // namespace

const std::vector<std::string>& roles() {
  static const std::vector<std::string> known = {"system", "developer", "user", "assistant", "tool"};
  return known;
}

std::string type_words(const Json& value) {
  if (value.is_string()) return "a text";
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  if (value.is_boolean()) return "true or false";
  return value.is_null() ? "null" : "a number";
}

void add_messages(Conversation& conversation, const Json& messages, const std::string& pointer) {
  if (!messages.is_array())
    throw RecordError(pointer, fmt::format("must be a list of messages, not {}", type_words(messages)));
  if (messages.empty()) throw RecordError(pointer, "has no messages");
  for (size_t i = 0; i < messages.size(); ++i)
    conversation.messages.push_back(checked_message(messages[i], fmt::format("{}/{}", pointer, i), conversation));
}

Json checked_tools(const Json& tools, const std::string& pointer) {
  if (tools.is_null()) return nullptr;
  if (tools.is_string()) {
    if (trim(tools.get_ref<const std::string&>()).empty()) return nullptr;
    auto parsed = foreign_json<Json>(tools.get<std::string>(), nullptr, /*all_digits=*/true);
    if (!parsed.is_array()) throw RecordError(pointer, "this text is not the JSON of a list of tools");
    return checked_tools(parsed, pointer);
  }
  if (!tools.is_array()) throw RecordError(pointer, fmt::format("must be a list of tools, not {}", type_words(tools)));
  for (size_t i = 0; i < tools.size(); ++i)
    if (!tools[i].is_object())
      throw RecordError(fmt::format("{}/{}", pointer, i),
                        fmt::format("a tool must be an object, not {}", type_words(tools[i])));
  return tools.empty() ? Json() : tools;
}

}  // namespace runner::chat
