#include "runner/chat/chat_template.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"
#include "runner/pretrained/model_files.hpp"

namespace runner::chat {
namespace {
namespace fs = std::filesystem;
using Texts = std::map<std::string, std::pair<std::string, std::string>>;  // name -> (place in errors, text)

Json read_json(const fs::path& path) {
  if (!has_model_file(path)) return Json::object();
  JsonFault fault;
  auto json = foreign_json<Json>(read_model_file(path), &fault);
  if (json.is_discarded()) throw usage_error("{}: is not valid JSON: {}", path.string(), fault.reason);
  if (!json.is_object()) throw usage_error("{}: is no JSON object", path.string());
  return json;
}

void add_json_templates(Texts& texts, const fs::path& path) {
  auto config = read_json(path);
  auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return;
  auto place = [&](std::string_view key) { return fmt::format("{} ({})", path.string(), key); };
  if (found->is_string()) {
    texts.try_emplace("default", place("chat_template"), found->get<std::string>());
    return;
  }
  auto is_named = [](const Json& item) {
    return item.is_object() && item.value("name", Json()).is_string() && item.value("template", Json()).is_string();
  };
  if (!found->is_array() || !std::all_of(found->begin(), found->end(), is_named))
    throw usage_error("{}: chat_template must be a text or a list of {{\"name\", \"template\"}}", path.string());
  for (auto& item : *found) {
    auto name = item["name"].get<std::string>();
    texts.try_emplace(name, place("chat_template " + name), item["template"].get<std::string>());
  }
}

Texts texts_of(const fs::path& folder) {
  Texts texts;
  if (auto path = folder / "chat_template.jinja"; has_model_file(path))
    texts.try_emplace("default", path.string(), read_model_file(path));
  if (fs::is_directory(folder / "additional_chat_templates"))
    for (auto& entry : fs::directory_iterator(folder / "additional_chat_templates"))
      if (entry.path().extension() == ".jinja")
        texts.try_emplace(entry.path().stem().string(), entry.path().string(), read_model_file(entry.path()));
  if (texts.empty()) add_json_templates(texts, folder / "tokenizer_config.json");
  if (texts.empty()) add_json_templates(texts, folder / "chat_template.json");
  return texts;
}

void add_special_tokens(Json& tokens, const Json& config) {
  for (auto& [key, value] : config.items()) {
    if (!key.ends_with("_token") || tokens.contains(key)) continue;
    if (value.is_string())
      tokens[key] = value;
    else if (value.is_object() && value.value("content", Json()).is_string())
      tokens[key] = value["content"];
  }
}

jinja::Value message_value(const Json& message) {
  if (!message.is_object()) return jinja::Value::from_json(message);
  jinja::Dict parts;
  for (auto& [key, part] : message.items())
    parts.items.emplace_back(
        key, key == "content" && part.is_null() ? jinja::Value::no_text() : jinja::Value::from_json(part));
  return jinja::Value::dict(std::move(parts));
}

struct UsualTokens {
  std::string_view name, bos, eos;
};
constexpr UsualTokens usual_tokens[] = {
    {"chatml", "", "<|im_end|>"}, {"llama3", "<|begin_of_text|>", "<|eot_id|>"},
    {"llama2", "<s>", "</s>"},    {"mistral", "<s>", "</s>"},
    {"gemma", "<bos>", "<eos>"},  {"phi3", "<s>", "<|endoftext|>"},
    {"zephyr", "<s>", "</s>"},    {"alpaca", "<s>", "</s>"},
    {"vicuna", "<s>", "</s>"},
};
}  // namespace

ChatTemplate ChatTemplate::from_text(std::string name, std::string_view text, Json special_tokens) {
  ChatTemplate result;
  result.templates_.emplace("default", jinja::Template(std::move(name), text));
  result.special_tokens_ = std::move(special_tokens);
  return result;
}

ChatTemplate ChatTemplate::from_folder(const fs::path& folder, std::string_view name) {
  ChatTemplate result;
  auto texts = texts_of(folder);
  std::vector<std::string> names;
  for (auto& [key, text] : texts) names.push_back(key);
  if (texts.empty())
    throw usage_error(
        "{} has no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json. A built-in "
        "one can be named: {}",
        folder.string(), join_or(built_in_names()));
  result.name_ = name;
  auto wanted = name.empty() ? "default" : std::string(name);
  if (!texts.contains(wanted)) {
    auto near = nearest(wanted, names);
    throw usage_error("{} has no chat template {}{}; it has {}", folder.string(), wanted,
                      near ? fmt::format(" (did you mean {}?)", *near) : "", join(names, ", "));
  }
  for (auto& [key, text] : texts)
    if (name.empty() || key == name) result.templates_.emplace(key, jinja::Template(text.first, text.second));
  result.special_tokens_ = special_tokens_of(folder);
  return result;
}

ChatTemplate ChatTemplate::built_in(std::string_view name, const Json& special_tokens) {
  for (auto& built_in : built_in_texts()) {
    if (built_in.name != name) continue;
    auto result = from_text(std::string(name), built_in.text, special_tokens);
    for (auto& usual : usual_tokens)
      if (usual.name == name) {
        for (auto [key, token] : {std::pair("bos_token", usual.bos), {"eos_token", usual.eos}})
          if (!result.special_tokens_.contains(key)) result.special_tokens_[key] = token;
      }
    return result;
  }
  auto near = nearest(name, built_in_names());
  throw usage_error("there is no built-in chat template {}{}; there are {}", name,
                    near ? fmt::format(" (did you mean {}?)", *near) : "", join(built_in_names(), ", "));
}

std::vector<std::string> ChatTemplate::built_in_names() {
  std::vector<std::string> names;
  for (auto& built_in : built_in_texts()) names.emplace_back(built_in.name);
  return names;
}

Json ChatTemplate::special_tokens_of(const fs::path& folder) {
  auto tokens = Json::object();
  for (auto file : {"tokenizer_config.json", "special_tokens_map.json"})
    add_special_tokens(tokens, read_json(folder / file));
  return tokens;
}

bool ChatTemplate::folder_has_template(const fs::path& folder) { return !texts_of(folder).empty(); }

const jinja::Template& ChatTemplate::chosen(bool with_tools) const {
  if (with_tools && name_.empty())
    if (auto found = templates_.find("tool_use"); found != templates_.end()) return found->second;
  return templates_.at(name_.empty() ? "default" : name_);
}

std::string ChatTemplate::special_token(std::string_view name) const {
  auto found = special_tokens_.find(name);
  return found == special_tokens_.end() ? "" : found->get<std::string>();
}

Rendered ChatTemplate::render(const Json& messages, const RenderRequest& request) const {
  auto& used = chosen(!request.tools.is_null());
  jinja::Dict variables;
  auto set = [&](std::string_view name, const Json& value) { variables.set(name, jinja::Value::from_json(value)); };
  try {
    std::vector<jinja::Value> list;
    for (auto& message : messages) list.push_back(message_value(message));
    variables.set("messages", jinja::Value::sequence(std::move(list)));
    set("tools", request.tools);
    set("documents", request.documents);
    set("add_generation_prompt", request.add_generation_prompt);
    for (auto& [name, value] : special_tokens_.items()) set(name, value);
    for (auto& [name, value] : request.variables.items()) set(name, value);
  } catch (const jinja::Fault& fault) {
    throw usage_error("{}: the variables of the template cannot be used: {}", used.name(), fault.message);
  }
  return used.render(variables, request.options);
}

}  // namespace runner::chat
