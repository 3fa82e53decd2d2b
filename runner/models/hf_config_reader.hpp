// Reads a Hugging Face config.json strictly: checks types, uses transformers' defaults, and throws Error(usage) for
// unsupported values.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "runner/base/error.hpp"

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

  bool has(const char* key) const { return config_.contains(key) && !config_.at(key).is_null(); }

  /// Throws Error(usage) unless the key is absent, null or `allowed`.
  void expect(const char* key, const nlohmann::json& allowed) const {
    if (has(key) && config_.at(key) != allowed)
      throw usage_error("config.json: {} = {} is not supported; only {} is", key, config_.at(key).dump(),
                        allowed.dump());
  }

  HfConfigReader table(const char* key) const {
    if (!config_.at(key).is_object())
      throw usage_error("config.json: {} = {} is not a table", key, config_.at(key).dump());
    return HfConfigReader(config_.at(key));
  }

 private:
  template <typename T>
  T convert(const char* key) const {
    try {
      return config_.at(key).get<T>();
    } catch (const nlohmann::json::type_error&) {
      throw usage_error("config.json: {} = {} has the wrong type", key, config_.at(key).dump());
    }
  }

  const nlohmann::json& config_;
};

}  // namespace runner
