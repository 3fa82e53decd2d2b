#include "runner/base/secrets.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "runner/base/text.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr size_t shortest_searched = 6;

/// "hooks.mail.smtpPassword" -> hooks, mail, smtp, password.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    const bool hump = i > 0 && std::isupper(c) && std::islower(static_cast<unsigned char>(name[i - 1]));
    if (hump || !std::isalnum(c)) words.emplace_back();
    if (std::isalnum(c)) words.back() += static_cast<char>(std::tolower(c));
  }
  std::erase(words, "");
  return words;
}

bool any_of(std::string_view word, std::initializer_list<std::string_view> list) {
  return std::ranges::find(list, word) != list.end();
}

/// Whether "key" or "token" after this word is something else than a secret.
bool is_harmless_kind(std::string_view word) {
  return any_of(word,
                {"text",   "image", "label", "prompt", "response", "chosen",  "rejected", "column", "field",  "json",
                 "public", "sort",  "cache", "group",  "primary",  "foreign", "query",    "value",  "pad",    "bos",
                 "eos",    "unk",   "cls",   "sep",    "mask",     "special", "image",    "audio",  "video",  "stop",
                 "end",    "start", "first", "last",   "next",     "per",     "each",     "by",     "monitor"});
}

char** environment() { return ::environ; }

/// Replaces the password in scheme://user:password@host.
std::string without_url_passwords(std::string text) {
  constexpr std::string_view scheme_end = "://";
  for (size_t at = text.find(scheme_end); at != std::string::npos; at = text.find(scheme_end, at + 1)) {
    const size_t begin = at + scheme_end.size();
    const size_t end = text.find_first_of("/@ \t\r\n\"'<>", begin);
    if (end == std::string::npos || text[end] != '@') continue;
    const size_t colon = text.find(':', begin);
    if (colon < end) text.replace(colon + 1, end - colon - 1, redacted);
  }
  return text;
}

}  // namespace

bool is_secret_name(std::string_view name) {
  const auto words = words_of(name);
  if (words.empty()) return false;
  for (const auto& word : words)
    if (word.ends_with("password") ||
        any_of(word, {"passwd", "passphrase", "passcode", "secret", "secrets", "credential", "credentials", "auth",
                      "authorization", "apikey", "authtoken", "bearer", "webhook"}))
      return true;
  const std::string& last = words.back();
  if (words.size() == 1) return last == "token";
  if (last == "key" || last == "token") return !is_harmless_kind(words[words.size() - 2]);
  if (last == "pwd" || last == "pass") return words[0] != "old";
  const bool key_id = words.size() > 2 && last == "id" && words[words.size() - 2] == "key";
  return key_id && any_of(words[words.size() - 3], {"access", "api"});
}

void Secrets::add(const std::string& value) {
  if (value.size() >= shortest_searched && value != redacted) values_.insert(value);
}

void Secrets::add_environment() {
  for (char** entry = environment(); entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || !is_secret_name(text.substr(0, equals))) continue;
    const std::string value(text.substr(equals + 1));
    if (!value.starts_with('/')) add(value);
  }
}

json Secrets::take_from(json object, std::vector<std::string>& keys, const std::string& prefix) {
  if (object.is_array())
    for (auto& element : object) element = take_from(std::move(element), keys, prefix);
  if (!object.is_object()) return object;
  for (auto& [name, value] : object.items()) {
    const std::string key = prefix.empty() ? name : prefix + "." + name;
    // A value with ${env:NAME} has its secret in the environment.
    const bool text = value.is_string() && !value.get<std::string>().empty();
    if (text && is_secret_name(name) && value.get<std::string>().find("${env:") == std::string::npos) {
      add(value.get<std::string>());
      value = redacted;
      keys.push_back(key);
    } else {
      value = take_from(std::move(value), keys, key);
    }
  }
  return object;
}

std::vector<std::string> Secrets::take_from(std::vector<std::string> words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const auto last_part = name.substr(name.rfind('.') + 1);
    if (!is_secret_name(last_part)) continue;
    if (equals != std::string::npos) {
      std::string value = words[i].substr(equals + 1);
      words[i] = words[i].substr(0, equals + 1) + redacted;
      if (value.size() > 1 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0])
        value = value.substr(1, value.size() - 2);
      add(value);
    } else if (name.starts_with("-") && i + 1 < words.size() && !words[i + 1].starts_with("-")) {
      add(words[++i]);
      words[i] = redacted;
    }
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
  if (value.is_structured())
    for (auto& element : value) element = json_without(std::move(element));
  return value;
}

std::vector<std::string> Secrets::without(std::vector<std::string> words) const {
  for (auto& word : words) word = without(std::move(word));
  return words;
}

}  // namespace runner
