// Reads a Hugging Face config.json strictly: checks types, uses transformers' defaults, and throws Error(usage) for
// unsupported values. It knows which keys were read, so that others can be refused.
#pragma once
#include <algorithm>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"

namespace runner {

class HfConfigReader {
 public:
  explicit HfConfigReader(const nlohmann::json& config) : config_(config) {}

  /// The value, or `fallback` if the key is absent or null.
  template <typename T>
  T get(const char* key, T fallback) const {
    return has(key) ? convert<T>(key) : fallback;
  }

  template <typename T>
  T require(const char* key) const {
    if (!has(key)) throw usage_error("config.json: `{}` is missing", key);
    return convert<T>(key);
  }

  /// A number of layers, heads or the like, so that lists of that length fit into memory. Throws Error(usage).
  int64_t require_count(const char* key) const {
    constexpr int64_t most = 1 << 20;
    const auto value = require<int64_t>(key);
    if (value < 1 || value > most)
      throw usage_error("config.json: {} = {}: must be at least 1{}", key, value,
                        value > most ? fmt::format(" and at most {}", most) : "");
    return value;
  }

  bool has(const char* key) const { return contains(key) && !config_.at(key).is_null(); }
  /// Whether the key is there, also with null.
  bool contains(const char* key) const {
    read_.insert(key);
    return config_.contains(key);
  }

  /// Throws Error(usage) for a key that no function above has asked for, that is not in `ignored` and that may change the network: a key
  /// that is null or false does not, and of others about tokens and lengths a note says that they are left out. `owner`: of whom it is not
  /// a key, for the message.
  void check_all_read(const std::string& owner, const std::set<std::string>& ignored = {}) const {
    for (const auto& [key, value] : config_.items()) {
      if (read_.contains(key) || ignored.contains(key) || value.is_null() || value == false) continue;
      if (is_beside_network(key)) {
        static std::mutex mutex;
        static std::set<std::string> noted;
        const std::lock_guard lock(mutex);
        if (noted.insert(key).second)
          log::info("config.json: `{}` is left out: it does not change the network", escape_invalid_utf8(key));
        continue;
      }
      auto close = nearest(key, {read_.begin(), read_.end()});
      throw usage_error("config.json: `{}` is not a known key {}{}", key, owner,
                        close ? fmt::format(" (did you mean `{}`?)", *close) : "");
    }
  }

  /// Throws Error(usage) unless the key is absent, null or `allowed`.
  void expect(const char* key, const nlohmann::json& allowed) const {
    if (has(key) && config_.at(key) != allowed)
      throw usage_error("config.json: {} = {} is not supported; only {} is", key, config_.at(key).dump(),
                        allowed.dump());
  }

  HfConfigReader table(const char* key) const {
    read_.insert(key);
    if (!config_.at(key).is_object())
      throw usage_error("config.json: {} = {} is not a table", key, config_.at(key).dump());
    return HfConfigReader(config_.at(key));
  }

 private:
  template <typename T>
  T convert(const char* key) const {
    const auto& value = config_.at(key);
    bool right = fits<T>(value);
    if constexpr (requires { typename T::value_type; } && !std::is_same_v<T, std::string> &&
                  !std::is_same_v<T, nlohmann::json>)
      right = value.is_array() && std::all_of(value.begin(), value.end(), fits<typename T::value_type>);
    if (!right) throw usage_error("config.json: {} = {} has the wrong type", key, value.dump());
    return value.get<T>();
  }

  /// The library also converts between booleans, integers and decimals, and wraps integers that are too large.
  template <typename T>
  static bool fits(const nlohmann::json& value) {
    if constexpr (std::is_same_v<T, bool>) return value.is_boolean();
    if constexpr (std::is_same_v<T, std::string>) return value.is_string();
    if constexpr (std::is_floating_point_v<T>) return value.is_number();
    if constexpr (std::is_same_v<T, nlohmann::json>) return true;
    if constexpr (std::is_integral_v<T>) {
      constexpr double exact = 9007199254740992;  // 2^53
      return value.is_number() && std::abs(value.get<double>()) <= exact &&
             (value.is_number_integer() || std::trunc(value.get<double>()) == value.get<double>());
    }
    return false;
  }

  static bool is_beside_network(const std::string& key) {
    static const std::set<std::string> keys = {"model_max_length",
                                               "max_sequence_length",
                                               "max_seq_len",
                                               "max_seq_length",
                                               "seq_length",
                                               "max_new_tokens",
                                               "keys_to_ignore_at_inference",
                                               "_commit_hash",
                                               "generation_config",
                                               "pretraining_dataset",
                                               "base_model",
                                               "license",
                                               "tags"};
    return keys.contains(key) || key.ends_with("_token") || key.ends_with("_token_id") || key.ends_with("_token_ids");
  }

  const nlohmann::json& config_;
  mutable std::set<std::string> read_;
};

/// model.activation of a feed-forward without gate, as transformers names it. Throws Error(usage) for another one.
inline std::string read_gelu(const HfConfigReader& reader, const char* key, const std::string& fallback) {
  const auto name = reader.get(key, fallback);
  if (name == "gelu") return "gelu";
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return "gelu_tanh";
  throw usage_error("config.json: {} = \"{}\" is not supported; allowed: gelu, gelu_new or gelu_pytorch_tanh", key,
                    name);
}

}  // namespace runner
