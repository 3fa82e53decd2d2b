// DeepSpeed's configuration -> values of a recipe: key by key from the table, and keys that mean something together.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runner/config/deepspeed_config.hpp"
#include "runner/config/deepspeed_keys.hpp"

namespace runner {

/// One configuration on its way into a recipe.
class DeepSpeedTranslator {
 public:
  DeepSpeedTranslator(const LocatedJson& root, const std::function<bool(const std::string&)>& given)
      : root_(root), given_(given) {}
  DeepSpeedMeaning all();

 private:
  // ---- reporting and emitting
  Diagnostic& report(const Origin& place, const std::string& code, const std::string& message);
  Diagnostic& refuse(const LocatedJson& node, const std::string& code, const std::string& message);
  void note(const LocatedJson& node, const std::string& text);
  void emit(const std::string& key, const nlohmann::json& value, const LocatedJson& node, const std::string& path,
            bool is_default = false);
  /// The value at a path, unless it is absent, null or left to others ("auto").
  const LocatedJson* at(const std::string& path) const;
  const LocatedJson* present(const std::string& path) const;
  bool says(const std::string& path, const nlohmann::json& value) const;
  std::string type_of(const std::string& block) const;

  // ---- key by key
  void walk(const LocatedJson& node, const std::string& path);
  /// Inside what is not looked at, names are still checked.
  void names(const DeepSpeedKey& block, const LocatedJson& node);
  void unknown(const LocatedJson& node, const std::string& block, const std::string& name);
  void judge(const DeepSpeedKey& key, const LocatedJson& node);
  static nlohmann::json option_value(const DeepSpeedKey& key, const LocatedJson& node);
  static bool switched_off(const DeepSpeedKey& key, const LocatedJson& node);
  void judge_block(const DeepSpeedKey& key, const LocatedJson& node);
  /// Blocks whose keys mean nothing because of another key.
  bool asleep(const DeepSpeedKey& key, const LocatedJson& node);

  // ---- keys that mean something together
  void batch();
  void product(const LocatedJson& global, const LocatedJson& micro, const LocatedJson& steps);
  void clipping();
  void precision();
  void zero();
  void offload(const std::string& block, const std::string& option, const std::string& device_option,
               const std::string& old_name);

  // ---- optimizer and schedule
  void optimizer();
  /// Known parameters that are another optimizer's.
  void parameters(const std::string& type, const std::vector<std::string>& its);
  /// DeepSpeed's optimizers do not decay weights unless told to.
  void decay(const LocatedJson& type);
  void scheduler();
  void warmup(const LocatedJson& type);
  void total(const LocatedJson& type);
  void decay_to_zero(const LocatedJson& type);
  void cosine(const LocatedJson& type);

  const LocatedJson& root_;
  const std::function<bool(const std::string&)>& given_;
  DeepSpeedMeaning meaning_;
};

/// 2e8 is an integer.
nlohmann::json integral(nlohmann::json value);

}  // namespace runner
