#include "runner/base/secret_names.hpp"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string>
#include <vector>

namespace runner {

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

}  // namespace

Secrecy secrecy_of_name(std::string_view name) { return secrecy_of_words(words_of(name), /*login_only_last=*/false); }

bool is_secret_variable(std::string_view name) {
  return secrecy_of_words(words_of(name), /*login_only_last=*/true) != Secrecy::none;
}

}  // namespace runner
