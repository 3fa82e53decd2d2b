#include "runner/base/secrets.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "runner/base/json_text.hpp"
#include "runner/base/secret_marks.hpp"
#include "runner/base/text.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr size_t shortest_searched = 6;

char** environment() { return ::environ; }

/// Whether a value has its secret from a variable: it has a reference, and beside it no word that may be one itself.
bool names_variable(std::string value) {
  constexpr std::string_view mark = "${env:";
  const bool refers = value.find(mark) != std::string::npos;
  for (size_t at = value.find(mark); at != std::string::npos; at = value.find(mark, at))
    value.replace(at, std::min(value.find('}', at), value.size() - 1) + 1 - at, " ");
  const auto in_word = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; };
  for (auto begin = value.begin(); refers && begin != value.end();) {
    const auto end = std::find_if_not(begin, value.end(), in_word);
    const bool letters = std::all_of(begin, end, [](unsigned char c) { return std::isalpha(c); });
    if (!letters && static_cast<size_t>(end - begin) >= shortest_searched) return false;
    begin = std::find_if(end, value.end(), in_word);
  }
  return refers;
}

/// Whether a value is a path of this machine: it exists, or its folder does, which is not the root.
bool is_path(const std::string& value) {
  namespace fs = std::filesystem;
  if (!value.starts_with('/')) return false;
  std::error_code failed;
  const auto folder = fs::path(value).parent_path();
  return fs::exists(value, failed) || (folder != "/" && fs::is_directory(folder, failed));
}

bool is_plain_word(std::string_view value) {
  return std::ranges::all_of(value, [](unsigned char c) { return std::islower(c) || c == '_' || c == '.'; });
}

/// The text as it stands between the quotes of JSON and of TOML's basic strings.
std::string escaped(const std::string& text) {
  const auto quoted = json_text(json(text));
  return quoted.substr(1, quoted.size() - 2);
}

std::string without_quotes(const std::string& text) {
  const bool quoted = text.size() > 1 && (text[0] == '"' || text[0] == '\'') && text.back() == text[0];
  return quoted ? text.substr(1, text.size() - 2) : text;
}

/// The part of a URL's user and password that is secret, in a word that goes on after "://" at `begin`: {begin, end}.
std::optional<std::pair<size_t, size_t>> secret_of_url(std::string_view text, size_t begin) {
  constexpr size_t shortest_token = 20;
  const size_t end = std::min(text.size(), text.find_first_of(" \t\r\n\"'<>`", begin));
  const auto word = text.substr(begin, end - begin);
  const size_t at = word.rfind('@');  // a password may have another one
  if (at == std::string_view::npos) return std::nullopt;
  const size_t host_end = std::min(word.find_first_of("/?#"), word.size());
  const size_t colon = word.find(':');
  const bool port = colon < host_end && word.substr(colon + 1, host_end - colon - 1).find_first_not_of("0123456789") ==
                                            std::string_view::npos;
  if (word.find('@') > host_end && (colon >= host_end || port)) return std::nullopt;  // an @ of the path
  if (colon + 1 < word.size() && word[colon + 1] == '$') return std::nullopt;         // a variable
  if (colon < at) return std::pair(begin + colon + 1, begin + at);
  return at >= shortest_token ? std::optional(std::pair(begin, begin + at)) : std::nullopt;
}

}  // namespace

std::string without_url_passwords(std::string text) {
  constexpr std::string_view scheme_end = "://";
  for (size_t at = text.find(scheme_end); at != std::string::npos; at = text.find(scheme_end, at + 1))
    if (const auto secret = secret_of_url(text, at + scheme_end.size()))
      text.replace(secret->first, secret->second - secret->first, redacted);
  return text;
}

void Secrets::add(const std::string& value) {
  if (value.size() < shortest_searched || value == redacted) return;
  values_.insert(value);
  values_.insert(escaped(value));
}

void Secrets::add_environment() {
  for (char** entry = environment(); entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || !is_secret_variable(text.substr(0, equals))) continue;
    const std::string value(text.substr(equals + 1));
    if (!is_path(value) && !is_plain_word(value)) add(value);
  }
}

json Secrets::hide(json value, Secrecy secrecy, bool& found) {
  if (value.is_structured())
    for (auto& element : value) element = hide(std::move(element), secrecy, found);
  std::string secret;
  if (value.is_string()) secret = value.get<std::string>();
  if (value.is_number() && secrecy == Secrecy::number) secret = value.dump();
  if (secret.empty() || names_variable(secret)) return value;
  add(secret);
  found = true;
  return redacted;
}

json Secrets::take_from(json object, std::vector<std::string>& keys, const std::string& prefix) {
  bool found = false;
  if (object.is_array()) {
    for (auto& element : object) element = take_from(std::move(element), keys, prefix);
  } else if (object.is_object()) {
    for (auto& [name, value] : object.items()) {
      const std::string key = prefix.empty() ? name : prefix + "." + name;
      const auto secrecy = secrecy_of_name(name);
      bool secret = false;
      value =
          secrecy == Secrecy::none ? take_from(std::move(value), keys, key) : hide(std::move(value), secrecy, secret);
      if (secret) keys.push_back(key);
    }
  } else if (object.is_string()) {
    const auto text = object.get<std::string>();
    object = take_from(text);
    found = object != text;
  }
  if (found && std::ranges::find(keys, prefix) == keys.end()) keys.push_back(prefix);
  return object;
}

std::string Secrets::take_from(std::string text) {
  for (const auto& mark : secret_marks(text)) {  // the last one first, so that the others keep their places
    add(text.substr(mark.begin, mark.size));
    text.replace(mark.begin, mark.size, redacted);
  }
  return text;
}

std::string Secrets::word_without(const std::string& word) {
  constexpr std::string_view set = "--set=";
  if (word.starts_with(set)) return std::string(set) + word_without(word.substr(set.size()));
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  if (equals == std::string::npos || !is_secret_name(name.substr(name.rfind('.') + 1))) return take_from(word);
  const std::string value = word.substr(equals + 1);
  if (value.empty() || names_variable(value)) return word;
  add(without_quotes(value));
  return word.substr(0, equals + 1) + redacted;
}

std::vector<std::string> Secrets::take_from(std::vector<std::string> words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const bool option = words[i].starts_with("-") && words[i].find('=') == std::string::npos;
    words[i] = word_without(words[i]);
    if (!option || !is_secret_name(words[i]) || i + 1 == words.size() || words[i + 1].starts_with("-")) continue;
    add(words[++i]);
    words[i] = redacted;
  }
  return words;
}

std::string Secrets::without(std::string text) const {
  for (const auto& value : values_)
    for (size_t at = text.find(value); at != std::string::npos; at = text.find(value, at))
      text.replace(at, value.size(), redacted);
  return without_url_passwords(std::move(text));
}

json Secrets::json_without(json value) const {
  if (value.is_string()) return without(value.get<std::string>());
  if (value.is_array())
    for (auto& element : value) element = json_without(std::move(element));
  if (!value.is_object()) return value;
  json clean = json::object();
  for (auto& [name, element] : value.items()) clean[without(name)] = json_without(std::move(element));
  return clean;
}

std::vector<std::string> Secrets::without(std::vector<std::string> words) const {
  for (auto& word : words) word = without(std::move(word));
  return words;
}

}  // namespace runner
