// adapter_config.json of PEFT (peft/tuners/lora/config.py), read and compared with a recipe. Torch-free.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "runner/base/files.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

class AdapterConfig {
 public:
  /// Reads the file in the folder. Throws Error(usage) if there is none or it is not a JSON object.
  explicit AdapterConfig(const fs::path& folder);

  /// Throws Error(usage) if the adapter is not a plain LoRA or DoRA, or if its rank or factor differ from the recipe's. A note names
  /// keys that are not known.
  void check(const Recipe::FineTune& fine_tune) const;

  /// The problem if rank_pattern and alpha_pattern give the module another factor than the recipe; otherwise empty. A pattern is the end
  /// of a module's name; regular expressions of PEFT are not read.
  std::string other_factor(const std::string& module, const Recipe::FineTune& fine_tune) const;

  /// The settings that decide which modules the adapter has, for messages: " (adapter_config.json has layers_to_transform = [0])".
  std::string choices() const;

 private:
  void check_keys() const;
  void check_patterns() const;
  bool has(const std::string& key) const;
  template <typename T>
  T get(const char* key, T otherwise) const;

  fs::path path_;
  nlohmann::json values_;
};

}  // namespace runner
