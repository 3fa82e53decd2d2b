#include "runner/base/secrets.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>

#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"

namespace runner {

using nlohmann::json;

namespace {

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

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> list) {
  return std::ranges::find(list, word) != list.end();
}

/// Whether "key" or "token" after this word is something else than a secret.
bool is_harmless_kind(std::string_view word) {
  return is_one_of(word,
                   {"text",   "image", "label", "prompt", "response", "chosen",  "rejected", "column", "field",  "json",
                    "public", "sort",  "cache", "group",  "primary",  "foreign", "query",    "value",  "pad",    "bos",
                    "eos",    "unk",   "cls",   "sep",    "mask",     "special", "image",    "audio",  "video",  "stop",
                    "end",    "start", "first", "last",   "next",     "per",     "each",     "by",     "monitor"});
}

/// Whether "keys" or "tokens" after this word are secrets. Most tokens are parts of texts, so these are few.
bool has_secret_plural(std::string_view word) {
  return is_one_of(word, {"api", "access", "auth", "bearer", "hf", "private", "refresh", "secret", "service", "session",
                          "ssh", "wandb"});
}

bool names_password(std::string_view word) {
  return word.ends_with("password") || word.ends_with("passwords") ||
         is_one_of(word, {"passwd", "passphrase", "passphrases", "passcode", "passcodes", "secret", "secrets"});
}

bool names_login(std::string_view word) {
  return is_one_of(word, {"credential", "credentials", "auth", "authorization"});
}

Secrecy secrecy_of_words(const std::vector<std::string>& words, bool login_only_last) {
  if (words.empty()) return Secrecy::none;
  if (std::ranges::any_of(words, names_password)) return Secrecy::number;
  const std::string& last = words.back();
  if (login_only_last ? names_login(last) : std::ranges::any_of(words, names_login)) return Secrecy::text;
  for (const auto& word : words)
    if (is_one_of(word, {"apikey", "apikeys", "authtoken", "authtokens", "bearer", "webhook", "webhooks"}))
      return Secrecy::text;
  const auto text_if = [](bool secret) { return secret ? Secrecy::text : Secrecy::none; };
  if (words.size() == 1 || last == "jwt") return text_if(last == "token" || last == "jwt");
  const std::string& before = words[words.size() - 2];
  if (last == "key" || last == "token") return text_if(!is_harmless_kind(before));
  if (last == "keys" || last == "tokens") return text_if(has_secret_plural(before));
  if (last == "pwd" || last == "pass") return text_if(words[0] != "old");
  const bool key_id = words.size() > 2 && last == "id" && before == "key";
  return text_if(key_id && is_one_of(words[words.size() - 3], {"access", "api"}));
}

// Finds secrets in commands and other texts by what stands before them.

/// Bytes of a text.
struct SecretMark {
  size_t begin, size;
};

constexpr std::string_view ends_of_words = " \t\r\n\"'`<>,;&|(){}[]";

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.'; }

class MarkFinder {
 public:
  explicit MarkFinder(std::string_view text) : text_(text), lower_(lower(text)) {}

  std::vector<SecretMark> all() {
    schemes();
    users();
    tokens();
    for (size_t i = 0; i < text_.size(); ++i)
      if (text_[i] == '=' || text_[i] == ':') assignment(i);
    std::vector<SecretMark> marks;
    for (const auto& [begin, size] : found_)
      if (marks.empty() || marks.back().begin + marks.back().size <= begin) marks.push_back({begin, size});
    std::ranges::reverse(marks);
    return marks;
  }

 private:
  size_t after_spaces(size_t at) const { return std::min(text_.find_first_not_of(" \t", at), text_.size()); }

  /// Words of programs and the schemes of Authorization, which are no secrets.
  static bool is_keyword(std::string_view word) {
    constexpr std::array<std::string_view, 9> words = {"true",  "false",  "null",   "none", "nil",
                                                       "basic", "bearer", "digest", "token"};
    return std::ranges::find(words, lower(word)) != words.end();
  }

  /// A value from `begin` on: what is between quotes, or a word.
  void value(size_t begin) {
    if (begin >= text_.size()) return;
    const char quote = text_[begin];
    const bool quoted = quote == '"' || quote == '\'';
    if (quoted) ++begin;
    const size_t end =
        std::min(text_.size(), quoted ? text_.find(quote, begin) : text_.find_first_of(ends_of_words, begin));
    const auto found = text_.substr(begin, end - begin);
    if (!found.empty() && found[0] != '$' && found[0] != '*' && found[0] != '=' && !is_keyword(found))
      found_.emplace(begin, found.size());
  }

  /// Whether a short word or one of letters only begins here, as in "the bearer of news".
  bool prose(size_t begin) const {
    constexpr size_t shortest = 6;
    const auto word = text_.substr(begin, text_.find_first_of(ends_of_words, begin) - begin);
    return word.size() < shortest || std::ranges::all_of(word, [](unsigned char c) { return std::isalpha(c) != 0; });
  }

  /// "Bearer V" anywhere; Basic, Digest, Token and others only after "Authorization:".
  void schemes() {
    constexpr std::string_view bearer = "bearer ", authorization = "authorization";
    for (size_t at = lower_.find(bearer); at != std::string::npos; at = lower_.find(bearer, at + 1))
      if ((at == 0 || !is_name(text_[at - 1])) && !prose(after_spaces(at + bearer.size())))
        value(after_spaces(at + bearer.size()));
    for (size_t at = lower_.find(authorization); at != std::string::npos; at = lower_.find(authorization, at + 1)) {
      size_t next = after_spaces(at + authorization.size());
      if (next >= text_.size() || (text_[next] != ':' && text_[next] != '=')) continue;
      next = after_spaces(next + 1);
      for (const std::string_view scheme : {"basic ", "digest ", "token ", "bearer "})
        if (std::string_view(lower_).substr(next).starts_with(scheme)) next = after_spaces(next + scheme.size());
      value(next);
    }
  }

  /// -u USER:V and --user USER:V, as curl has them. Two numbers are ids of a user and a group.
  void users() {
    for (const std::string_view option : {"-u ", "--user ", "--user="})
      for (size_t at = text_.find(option); at != std::string_view::npos; at = text_.find(option, at + 1)) {
        if (at > 0 && text_[at - 1] != ' ') continue;
        const size_t begin = after_spaces(at + option.size());
        const auto word = text_.substr(begin, text_.find_first_of(" \t\r\n", begin) - begin);
        const size_t colon = word.find(':');
        if (colon != std::string_view::npos && word[0] != '$' &&
            word.find_first_not_of("0123456789:") != std::string_view::npos)
          value(begin + colon + 1);
      }
  }

  /// Words with the beginning, the signs and the length of a token.
  void tokens() {
    struct Form {
      std::string_view begin, signs;  ///< of the rest; "": letters and digits
      size_t shortest;                ///< of the rest
    };
    static constexpr Form forms[] = {
        {"eyJ", "-_.", 20}, {"ghp_", "", 36},     {"gho_", "", 36},   {"ghu_", "", 36},         {"ghs_", "", 36},
        {"ghr_", "", 36},   {"hf_", "", 30},      {"sk-", "-_", 20},  {"github_pat_", "_", 22}, {"AKIA", "", 16},
        {"ASIA", "", 16},   {"glpat-", "-_", 20}, {"xoxb-", "-", 20}, {"xoxp-", "-", 20},       {"xoxa-", "-", 20},
        {"xoxs-", "-", 20}, {"xoxr-", "-", 20}};
    for (const auto& form : forms)
      for (size_t at = text_.find(form.begin); at != std::string_view::npos; at = text_.find(form.begin, at + 1)) {
        if (at > 0 && (is_name(text_[at - 1]) || text_[at - 1] == '/')) continue;
        size_t end = at + form.begin.size();
        bool digit = false;
        while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) ||
                                      form.signs.find(text_[end]) != std::string_view::npos))
          digit = std::isdigit(static_cast<unsigned char>(text_[end++])) || digit;
        if (digit && end - at - form.begin.size() >= form.shortest) found_.emplace(at, end - at);
      }
  }

  /// NAME=V and NAME = "V"; X-NAME: V and "NAME": "V". Other colons are prose.
  void assignment(size_t sign) {
    size_t end = sign;
    while (end > 0 && text_[end - 1] == ' ') --end;
    const bool quoted_name = end > 0 && (text_[end - 1] == '"' || text_[end - 1] == '\'');
    if (quoted_name) --end;
    size_t begin = end;
    while (begin > 0 && is_name(text_[begin - 1])) --begin;
    const auto name = text_.substr(begin, end - begin);
    if (!is_secret_name(name.substr(name.rfind('.') + 1))) return;
    const size_t next = after_spaces(sign + 1);
    const bool spaced = next > sign + 1 || end + (quoted_name ? 1 : 0) < sign;
    const bool quoted = next < text_.size() && (text_[next] == '"' || text_[next] == '\'');
    const bool header = name.find('-') != std::string_view::npos;
    if (text_[sign] == '=' ? !spaced || quoted : quoted_name ? quoted : header) value(next);
  }

  std::string_view text_;
  std::string lower_;
  std::map<size_t, size_t> found_;  ///< begin -> size
};

/// The values in "Bearer V", "Authorization: V", "-u USER:V", "NAME=V", and "X-NAME: V" or "\"NAME\": \"V\"", where NAME is a secret name;
/// and words that have the form of a token: JSON web tokens, those of GitHub, GitLab, Hugging Face, Slack, AWS, OpenAI, Anthropic. The
/// last one comes first. Not references to variables ($NAME, ${env:NAME}), and not "***".
std::vector<SecretMark> secret_marks(std::string_view text) { return MarkFinder(text).all(); }

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

Secrecy secrecy_of_name(std::string_view name) { return secrecy_of_words(words_of(name), /*login_only_last=*/false); }

bool is_secret_variable(std::string_view name) {
  return secrecy_of_words(words_of(name), /*login_only_last=*/true) != Secrecy::none;
}

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
