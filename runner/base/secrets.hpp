// Keeps passwords, keys and tokens out of records: what the name of a value says about it, and a filter of texts.
#pragma once
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace runner {

/// What stands for a secret value in records.
inline constexpr const char* redacted = "***";

/// Whether a value with this name is a secret: names with the words password, secret, credential, auth, or with token or a kind of
/// key at their end, as in WANDB_API_KEY, hf-token, hooks.mail.smtpPassword. Not tokens of texts (pad_token, max_tokens), nor columns
/// and keys of other kinds (text_key, public_key).
bool is_secret_name(std::string_view name);

/// The values that must not be recorded, and texts without them. Only texts of six characters or more are searched for, because
/// shorter ones are also parts of other words.
class Secrets {
 public:
  /// Adds the values of this process's environment variables with secret names, except paths.
  void add_environment();
  void add(const std::string& value);

  /// Replaces texts with secret names in an object and below it, except those with ${env:NAME}, and adds them. The dotted keys are added to `keys`.
  nlohmann::json take_from(nlohmann::json object, std::vector<std::string>& keys, const std::string& prefix = "");
  /// Replaces values in a command line, as in --api-key=V, --api-key V, --set hooks.mail.password=V and NAME_TOKEN=V, and adds
  /// them.
  std::vector<std::string> take_from(std::vector<std::string> words);

  /// Texts without the values, and without the password of URLs (scheme://user:password@...).
  std::string without(std::string text) const;
  nlohmann::json json_without(nlohmann::json value) const;
  std::vector<std::string> without(std::vector<std::string> words) const;

 private:
  std::set<std::string, std::greater<>> values_;  ///< so that a value comes before its prefixes
};

}  // namespace runner
