// Keeps passwords, keys and tokens out of records: a filter of texts. recipes/README.md, "Secrets", tells users its rules.
#pragma once
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace runner {

// The secrecy of a value, judged by its name: whether it is a password, a key or a token.

/// How much the words of a name say. hooks.mail.smtpPassword has the words hooks, mail, smtp and password.
enum class Secrecy {
  none,
  text,    ///< a text is a secret: auth_header, credential_file, api_key, hf-token, access_tokens
  number,  ///< a number, too: password, client_secret, passcode
};
Secrecy secrecy_of_name(std::string_view name);

/// Whether a text with this name is a secret: names with the words password, secret, credential, auth or webhook, or with token or a
/// kind of key at their end, as in WANDB_API_KEY and hf-token. Not tokens of texts (pad_token, max_tokens), nor columns and keys of
/// other kinds (text_key, public_key).
inline bool is_secret_name(std::string_view name) { return secrecy_of_name(name) != Secrecy::none; }

/// Whether an environment variable with this name is a secret: as is_secret_name(), but auth and credential count only as the last word,
/// because other programs name variables. So CREDENTIAL_HELPER and APP_AUTH_MODE are no secrets.
bool is_secret_variable(std::string_view name);

/// The replacement of a secret value in records.
inline constexpr const char* redacted = "***";

/// The values that must not be recorded, and texts without them. Only texts of six characters or more are searched for, because
/// shorter ones are also parts of other words.
class Secrets {
 public:
  /// Adds the values of this process's environment variables with secret names, except paths and plain words (lower-case letters, _
  /// and .), which are also words of recipes.
  void add_environment();
  /// Adds a value, also as JSON and TOML escape it.
  void add(const std::string& value);

  /// Replaces texts and numbers with secret names in an object and below it, except those with ${env:NAME}, and adds them. A list or
  /// table with a secret name is replaced in all its parts. Of other texts, what take_from(text) finds is replaced. The dotted keys
  /// are added to `keys`.
  nlohmann::json take_from(nlohmann::json object, std::vector<std::string>& keys, const std::string& prefix = "");
  /// Replaces values in a command line, as in --api-key=V, --api-key V, --set hooks.mail.password=V and NAME_TOKEN=V, and adds
  /// them.
  std::vector<std::string> take_from(std::vector<std::string> words);
  /// Replaces what commands and other texts mark as secret: Bearer V, NAME=V with secret names, and tokens of known
  /// forms. References to variables ($NAME, ${env:NAME}) stay.
  std::string take_from(std::string text);

  /// Texts without the values, and without the passwords of URLs (without_url_passwords). Of JSON, also in keys.
  std::string without(std::string text) const;
  nlohmann::json json_without(nlohmann::json value) const;
  std::vector<std::string> without(std::vector<std::string> words) const;

 private:
  nlohmann::json hide(nlohmann::json value, Secrecy secrecy, bool& found);
  std::string word_without(const std::string& word);

  struct Longer {
    bool operator()(const std::string& a, const std::string& b) const {
      return a.size() != b.size() ? a.size() > b.size() : a < b;
    }
  };
  std::set<std::string, Longer> values_;  ///< so that a value comes before its parts
};

/// Replaces V in scheme://user:V@host, and in scheme://V@host if it is long enough for a token.
std::string without_url_passwords(std::string text);

}  // namespace runner
