// The secrecy of a value, judged by its name: whether it is a password, a key or a token.
#pragma once
#include <string_view>

namespace runner {

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

}  // namespace runner
