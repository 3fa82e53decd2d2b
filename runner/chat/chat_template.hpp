// The chat template of a model: from its folder, from a text, or built in.
#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runner/chat/template.hpp"

namespace runner::chat {

using Json = nlohmann::ordered_json;
using jinja::ByteSpan, jinja::Rendered;

/// The inputs of a template besides the messages.
struct RenderRequest {
  Json tools = nullptr;      ///< a list of JSON schemas, or null
  Json documents = nullptr;  ///< a list of {title, text}, or null
  bool add_generation_prompt = false;
  Json variables =
      Json::object();  ///< more variables, e.g. {"enable_thinking": false}; they replace those of the same name
  jinja::RenderOptions options = {};
};

/// A template, or several under names ("default", "tool_use", "rag"), and the special tokens that they print.
class ChatTemplate {
 public:
  /// The template that transformers finds: FOLDER/chat_template.jinja and FOLDER/additional_chat_templates/NAME.jinja, otherwise
  /// `chat_template` of tokenizer_config.json (a text, or a list of {name, template}), otherwise of chat_template.json. Special tokens are
  /// the keys *_token of tokenizer_config.json and special_tokens_map.json, texts or objects {content}. `name` chooses one of several; if
  /// it is empty, "tool_use" is used for messages with tools if it exists, and "default" otherwise. Raises Error without a template, with
  /// an unknown name (and says the nearest), and TemplateError for a syntax error. A GGUF file is such a folder (model_files.hpp).
  static ChatTemplate from_folder(const std::filesystem::path& folder, std::string_view name = {});
  /// chatml, llama3, llama2, mistral, gemma, phi3, zephyr, alpaca, vicuna. `special_tokens` replaces its usual ones.
  static ChatTemplate built_in(std::string_view name, const Json& special_tokens = Json::object());
  static std::vector<std::string> built_in_names();
  /// `name` is written in errors.
  static ChatTemplate from_text(std::string name, std::string_view text, Json special_tokens = Json::object());

  /// Special tokens of a folder: {"bos_token": "<s>", ..}. Empty if it has no tokenizer_config.json.
  static Json special_tokens_of(const std::filesystem::path& folder);
  static bool folder_has_template(const std::filesystem::path& folder);

  /// The text of the messages, and the bytes of it that generation blocks wrote. Raises jinja::TemplateError, and
  /// jinja::RaisedByTemplate if the template refuses the messages.
  Rendered render(const Json& messages, const RenderRequest& request = {}) const;

  /// The template for messages with or without tools.
  const jinja::Template& chosen(bool with_tools) const;
  const Json& special_tokens() const { return special_tokens_; }
  std::string special_token(std::string_view name) const;  ///< empty if there is none

 private:
  std::map<std::string, jinja::Template> templates_;
  std::string name_;
  Json special_tokens_ = Json::object();
};

/// The texts of the built-in templates.
struct BuiltInText {
  std::string_view name, text;
};
std::span<const BuiltInText> built_in_texts();

}  // namespace runner::chat
