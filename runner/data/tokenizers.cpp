#include "runner/data/tokenizers.hpp"

#include <algorithm>
#include <regex>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/data/source_files.hpp"
#include "runner/pretrained/model_files.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"

namespace runner {

namespace {

/// The file that a name stands for. The name of a missing file may be a misspelled word: "sentencepeice".
fs::path given_file(const std::string& name) {
  const fs::path path = name;
  if (fs::exists(path)) return tokenizer_file(path);
  if (const auto hint = setup_hint(path); !hint.empty()) throw usage_error("there is no file {}{}", name, hint);
  auto near = nearest(path.filename().string(), {"bytes", "sentencepiece"});
  if (!near) near = nearest_file(path);
  throw usage_error("there is no file {}, and it is neither \"bytes\" nor \"sentencepiece\"{}", name,
                    near ? "; did you mean " + *near + "?"
                         : ": a tokenizer is a tokenizer.json, a SentencePiece model, a tiktoken or GGUF file, or a "
                           "folder with one of them");
}

/// Puts the key in front of the messages about a file.
template <typename Call>
auto about_tokenizer(Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    throw usage_error("data.tokenizer: {}", error.what());
  }
}

/// The model of the tokenizer "sentencepiece".
fs::path sentencepiece_of(const Recipe::Data& data, const std::string& cache_dir) {
  return data.trained_tokenizer.empty() ? trained_sentencepiece(data, cache_dir) : fs::path(data.trained_tokenizer);
}

using chat::ChatTemplate;

/// The folder of a tokenizer that is a file or a folder, or a GGUF file; empty for "bytes" and "sentencepiece".
fs::path tokenizer_folder(const Recipe::Data& data) {
  const fs::path path = data.tokenizer;
  if (is_model_folder(path)) return path;
  return fs::is_regular_file(path) ? path.parent_path() : fs::path();
}

ChatTemplate named_template(const std::string& name, const Recipe::Data& data) {
  const auto names = ChatTemplate::built_in_names();
  const auto folder = tokenizer_folder(data);
  const auto special = folder.empty() ? chat::Json::object() : ChatTemplate::special_tokens_of(folder);
  if (std::ranges::find(names, name) != names.end()) return ChatTemplate::built_in(name, special);
  if (is_model_folder(name)) return ChatTemplate::from_folder(name);
  if (fs::is_regular_file(name)) return ChatTemplate::from_text(name, read_file(name), special);
  auto near = nearest(name, names);
  if (!near) near = nearest_file(name);
  throw usage_error("there is no file \"{}\"; the built-in templates are {}{}", name, join(names, ", "),
                    near ? "; did you mean " + *near + "?" : "");
}

std::optional<ChatTemplate> find_template(const Recipe::Data& data, chat::Layout layout) {
  if (layout == chat::Layout::text) return {};
  if (data.chat_template) return named_template(*data.chat_template, data);
  const auto folder = tokenizer_folder(data);
  if (!folder.empty() && ChatTemplate::folder_has_template(folder)) return ChatTemplate::from_folder(folder);
  if (layout == chat::Layout::alpaca) return named_template("alpaca", data);
  if (layout == chat::Layout::prompt_completion) return {};
  throw usage_error("the tokenizer \"{}\" has no chat template: name one of {}, or a file", data.tokenizer,
                    join(ChatTemplate::built_in_names(), ", "));
}

}  // namespace

std::vector<Tokenizer::File> tokenizer_files(const Recipe::Data& data, const std::string& cache_dir) {
  if (!needs_tokenizing(data)) return {};
  if (data.tokenizer == "sentencepiece") return tokenizer_files(sentencepiece_of(data, cache_dir));
  return about_tokenizer([&] { return tokenizer_files(given_file(data.tokenizer)); });
}

std::unique_ptr<Tokenizer> open_tokenizer(const Recipe::Data& data, const std::string& cache_dir) {
  if (data.tokenizer == "bytes") return make_bytes_tokenizer();
  if (data.tokenizer == "sentencepiece") return open_tokenizer_file(sentencepiece_of(data, cache_dir));
  return about_tokenizer([&] { return open_tokenizer_file(given_file(data.tokenizer)); });
}

std::optional<ChatTemplate> chat_template_of(const Recipe::Data& data, chat::Layout layout) {
  try {
    return find_template(data, layout);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("data.chat_template: {}", error.what()));
  }
}

std::set<std::string> markers_of_template(const Recipe::Data& data) {
  if (!data.has_records() || data.labels_texts() || !data.chat_template) return {};
  const auto source = chat_template_of(data, chat::Layout::messages)->chosen(false).source();
  static const std::regex marker("<\\|[a-z_]+\\|>|<[a-z]+_of_[a-z]+>");
  std::set<std::string> markers;
  for (std::sregex_iterator at(source.begin(), source.end(), marker), end; at != end; ++at) markers.insert(at->str());
  return markers;
}

}  // namespace runner
