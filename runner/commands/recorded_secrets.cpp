#include "runner/commands/recorded_secrets.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/config/config.hpp"

namespace runner {

namespace {

/// Whether an override sets or removes the key, or something that contains it: "logging.notify=..." for logging.notify.webhook.
bool replaces(const std::string& override_text, const std::string& key) {
  for (size_t end = key.size(); end != std::string::npos && end > 0; end = key.rfind('.', end - 1)) {
    const std::string part = key.substr(0, end);
    if (override_text.starts_with(part + "=") || override_text == unset_override(part)) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> secret_keys(const nlohmann::json& run) {
  const auto keys = run.find("redacted");
  return keys != run.end() && keys->is_array() ? keys->get<std::vector<std::string>>() : std::vector<std::string>();
}

void need_secret_values(const nlohmann::json& run, const std::vector<std::string>& overrides) {
  for (const auto& key : secret_keys(run))
    if (std::ranges::none_of(overrides, [&](const auto& text) { return replaces(text, key); }))
      throw usage_error(
          "run {} had a secret value of {}, which neither the ledger nor its folder has: give it with --set {}=VALUE",
          run.at("id").get<std::string>(), key, key);
}

}  // namespace runner
