#include "runner/chat/layouts.hpp"

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
      throw RecordError(place + "/type",
                        fmt::format("only parts of type \"text\" can be used, not {}", shortened_json(type)));
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
                      fmt::format("unknown role \"{}\"{}; allowed: {}", shortened_text(role.get<std::string>()),
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

struct LayoutRow {
  Layout layout;
  std::string_view name;
  std::vector<std::string> required, optional;
};
// clang-format off
const std::vector<LayoutRow> layouts = {
    {Layout::messages, "messages", {"messages"}, {"tools", "documents", "chat_template_kwargs"}},
    {Layout::sharegpt, "sharegpt", {"conversations"}, {"system", "tools"}},
    {Layout::prompt_completion, "prompt_completion", {"prompt", "completion"}, {"tools", "documents", "chat_template_kwargs"}},
    {Layout::alpaca, "alpaca", {"instruction", "output"}, {"input", "system", "history"}},
    {Layout::text, "text", {"text"}, {}},
};
const std::vector<std::pair<std::string_view, std::string_view>> sharegpt_roles = {
    {"human", "user"}, {"user", "user"}, {"gpt", "assistant"}, {"chatgpt", "assistant"}, {"assistant", "assistant"}, {"model", "assistant"},
    {"bing", "assistant"}, {"bard", "assistant"}, {"system", "system"}, {"tool", "tool"}, {"observation", "tool"},
    {"function_response", "tool"}, {"function_call", "assistant"},
};
// clang-format on

const LayoutRow& row_of(Layout layout) {
  return *std::find_if(layouts.begin(), layouts.end(), [&](auto& row) { return row.layout == layout; });
}

std::string column(const Columns& columns, const std::string& field) {
  auto found = columns.find(field);
  return found == columns.end() ? field : found->second;
}

/// A key as a part of a JSON pointer.
std::string escaped(const std::string& key) {
  std::string result;
  for (char c : key) result += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return result;
}

void add(Json& messages, std::string_view role, Json content) {
  messages.push_back(Json{{"role", role}, {"content", std::move(content)}});
}

/// The calls in the text of a function_call message: one {"name", "arguments"}, or a list of them.
Json calls_of(const std::string& text, const std::string& pointer) {
  auto parsed = foreign_json<Json>(text, nullptr, /*all_digits=*/true);
  if (parsed.is_discarded())
    throw RecordError(pointer, "the text of a function_call must be JSON: {\"name\": ..., \"arguments\": {...}}");
  return parsed.is_array() ? parsed : Json::array({parsed});
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

std::vector<std::string> layout_names() {
  std::vector<std::string> names;
  for (auto& row : layouts) names.emplace_back(row.name);
  return names;
}

std::string_view layout_name(Layout layout) { return row_of(layout).name; }

Layout layout_of_name(std::string_view name) {
  for (auto& row : layouts)
    if (row.name == name) return row.layout;
  auto near = nearest(name, layout_names());
  throw usage_error("there is no layout {}{}; there are {}", name,
                    near ? fmt::format(" (did you mean {}?)", *near) : "", join(layout_names(), ", "));
}

RecordReader::RecordReader(Layout layout, Columns columns) : layout_(layout), columns_(std::move(columns)) {
  auto fields = row_of(layout).required;
  fields.insert(fields.end(), row_of(layout).optional.begin(), row_of(layout).optional.end());
  for (auto& [field, name] : columns_) {
    if (std::find(fields.begin(), fields.end(), field) != fields.end()) continue;
    auto near = nearest(field, fields);
    throw usage_error("the layout {} has no field {}{}; it has {}", layout_name(layout), field,
                      near ? fmt::format(" (did you mean {}?)", *near) : "", join(fields, ", "));
  }
}

RecordReader RecordReader::detect(const Json& record, const Columns& columns) {
  if (!record.is_object()) throw RecordError("", fmt::format("a record must be an object, not {}", type_words(record)));
  std::vector<const LayoutRow*> fitting;
  std::vector<std::string> wanted, keys;
  for (auto& row : layouts) {
    if (std::all_of(row.required.begin(), row.required.end(),
                    [&](auto& field) { return record.contains(column(columns, field)); }))
      fitting.push_back(&row);
    for (auto& field : row.required) wanted.push_back(column(columns, field));
  }
  if (fitting.size() == 2 && fitting[1]->layout == Layout::text)
    fitting.pop_back();  // a text in addition to the messages is their rendering
  if (fitting.size() > 1)
    throw RecordError(
        "", fmt::format("the keys fit the layouts {} and {}; name one of them", fitting[0]->name, fitting[1]->name));
  if (fitting.empty()) {
    for (const auto& [field, name] : columns)
      if (std::ranges::find(wanted, name) != wanted.end() && !record.contains(name))
        throw RecordError(
            "",
            fmt::format("data.columns says that {} is the column `{}`, which the record does not have", field, name));
    std::string hint;
    for (auto& [key, value] : record.items()) {
      keys.push_back(shortened_text(key));
      if (auto near = nearest(key, wanted); near && hint.empty())
        hint = fmt::format(" (is {} a column {}?)", keys.back(), *near);
    }
    throw RecordError(
        "",
        fmt::format(
            "no layout has the keys {}{}. The layouts are: messages; prompt and completion; instruction and output; "
            "conversations; text. data.columns maps columns with other names",
            keys.empty() ? "of an empty object" : first_ten(keys), hint));
  }
  auto layout = fitting[0]->layout;
  if (layout == Layout::sharegpt) {  // "conversations" with role and content are messages
    auto& list = record[column(columns, "conversations")];
    if (list.is_array() && !list.empty() && list[0].is_object() && list[0].contains("role") &&
        !list[0].contains("from")) {
      auto mapped = columns;
      mapped.erase("conversations");
      mapped.erase("system");
      mapped["messages"] = column(columns, "conversations");
      return RecordReader(Layout::messages, std::move(mapped));
    }
  }
  return RecordReader(layout, columns);
}

const Json* RecordReader::field(const Json& record, const std::string& name) const {
  auto found = record.find(column(columns_, name));
  return found == record.end() || found->is_null() ? nullptr : &*found;
}

std::string RecordReader::pointer(const std::string& name) const { return "/" + escaped(column(columns_, name)); }

const Json& RecordReader::needed(const Json& record, const std::string& name) const {
  if (auto* found = field(record, name)) return *found;
  std::vector<std::string> keys;
  for (auto& [key, value] : record.items()) keys.push_back(key);
  auto near = nearest(column(columns_, name), keys);
  throw RecordError(pointer(name), fmt::format("is missing; the layout {} needs it{}", layout_name(layout_),
                                               near ? fmt::format(". Is it {}?", *near) : ""));
}

std::string RecordReader::text_field(const Json& record, const std::string& name, bool required) const {
  auto* value = required ? &needed(record, name) : field(record, name);
  if (!value) return "";
  if (!value->is_string()) throw RecordError(pointer(name), fmt::format("must be a text, not {}", type_words(*value)));
  return value->get<std::string>();
}

Conversation RecordReader::read(const Json& record) const {
  if (!record.is_object()) throw RecordError("", fmt::format("a record must be an object, not {}", type_words(record)));
  Conversation conversation;
  switch (layout_) {
    case Layout::text:
      conversation.form = Conversation::Form::text;
      conversation.text = text_field(record, "text", true);
      return conversation;
    case Layout::messages:
      add_messages(conversation, needed(record, "messages"), pointer("messages"));
      break;
    case Layout::prompt_completion:
      read_prompt_completion(conversation, record);
      break;
    case Layout::alpaca:
      read_alpaca(conversation, record);
      return conversation;
    case Layout::sharegpt:
      read_sharegpt(conversation, record);
      break;
  }
  if (auto* tools = field(record, "tools")) conversation.tools = checked_tools(*tools, pointer("tools"));
  if (layout_ == Layout::sharegpt) return conversation;
  if (auto* documents = field(record, "documents")) {
    if (!documents->is_array())
      throw RecordError(pointer("documents"), fmt::format("must be a list, not {}", type_words(*documents)));
    conversation.documents = *documents;
  }
  if (auto* variables = field(record, "chat_template_kwargs")) {
    if (!variables->is_object())
      throw RecordError(pointer("chat_template_kwargs"),
                        fmt::format("must be an object, not {}", type_words(*variables)));
    conversation.variables = *variables;
  }
  return conversation;
}

void RecordReader::read_prompt_completion(Conversation& conversation, const Json& record) const {
  auto &prompt = needed(record, "prompt"), &completion = needed(record, "completion");
  if (prompt.is_string() && completion.is_string()) {
    conversation.form = Conversation::Form::pair;
    conversation.prompt = prompt.get<std::string>();
    conversation.completion = completion.get<std::string>();
    return;
  }
  if (!prompt.is_array() || !completion.is_array())
    throw RecordError(
        pointer(prompt.is_array() ? "completion" : "prompt"),
        fmt::format("prompt and completion must both be texts or both be lists of messages; here they are {} and {}",
                    type_words(prompt), type_words(completion)));
  add_messages(conversation, prompt, pointer("prompt"));
  conversation.prompt_messages = conversation.messages.size();
  add_messages(conversation, completion, pointer("completion"));
}

void RecordReader::read_alpaca(Conversation& conversation, const Json& record) const {
  auto& messages = conversation.messages;
  if (auto system = text_field(record, "system", false); !system.empty()) add(messages, "system", system);
  if (auto* history = field(record, "history")) {
    if (!history->is_array())
      throw RecordError(pointer("history"), fmt::format("must be a list of pairs, not {}", type_words(*history)));
    for (size_t i = 0; i < history->size(); ++i) {
      auto& pair = (*history)[i];
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
        throw RecordError(fmt::format("{}/{}", pointer("history"), i),
                          "must be a pair of texts: [instruction, output]");
      add(messages, "user", pair[0]);
      add(messages, "assistant", pair[1]);
    }
  }
  auto instruction = text_field(record, "instruction", true), input = text_field(record, "input", false);
  add(messages, "user", input.empty() ? instruction : instruction + "\n" + input);
  if (!input.empty()) {  // the template alpaca has a place of its own for it
    messages.back()["instruction"] = instruction;
    messages.back()["input"] = input;
  }
  add(messages, "assistant", text_field(record, "output", true));
}

void RecordReader::read_sharegpt(Conversation& conversation, const Json& record) const {
  auto& turns = needed(record, "conversations");
  auto place = pointer("conversations");
  if (!turns.is_array())
    throw RecordError(place, fmt::format("must be a list of {{\"from\", \"value\"}}, not {}", type_words(turns)));
  auto messages = Json::array();
  if (auto system = text_field(record, "system", false); !system.empty()) add(messages, "system", system);
  for (size_t i = 0; i < turns.size(); ++i) {
    auto& turn = turns[i];
    auto here = fmt::format("{}/{}", place, i);
    if (!turn.is_object())
      throw RecordError(here, fmt::format("must be an object {{\"from\", \"value\"}}, not {}", type_words(turn)));
    for (auto key : {"from", "value"})
      if (!turn.value(key, Json()).is_string())
        throw RecordError(
            fmt::format("{}/{}", here, key),
            turn.contains(key) ? fmt::format("must be a text, not {}", type_words(turn[key])) : "is missing");
    auto from = turn["from"].get<std::string>();
    auto role =
        std::find_if(sharegpt_roles.begin(), sharegpt_roles.end(), [&](auto& row) { return row.first == from; });
    if (role == sharegpt_roles.end()) {
      std::vector<std::string> names;
      for (auto& row : sharegpt_roles) names.emplace_back(row.first);
      auto near = nearest(from, names);
      throw RecordError(here + "/from",
                        fmt::format("unknown role \"{}\"{}; allowed: {}", from,
                                    near ? fmt::format(", did you mean {}?", *near) : "", join(names, ", ")));
    }
    auto message = turn;
    message.erase("from");
    message.erase("value");
    message["role"] = role->second;
    message["content"] = from == "function_call" ? Json() : turn["value"];
    if (from == "function_call") message["tool_calls"] = calls_of(turn["value"].get<std::string>(), here + "/value");
    messages.push_back(std::move(message));
  }
  add_messages(conversation, messages, place);
}

}  // namespace runner::chat
