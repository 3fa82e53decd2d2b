// DeepSpeed's configuration -> values of a recipe: single keys by the table, and keys that depend on each other.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runner/import/deepspeed_config.hpp"
#include "runner/import/deepspeed_keys.hpp"

namespace runner {

/// The translation of one configuration.
class DeepSpeedTranslator {
 public:
  DeepSpeedTranslator(LocatedJson root, const std::function<bool(const std::string&)>& given)
      : root_(std::move(root)), given_(given) {}
  Imported all();

 private:
  // ---- reporting and emitting
  Diagnostic& report(const Origin& place, const std::string& code, const std::string& message);
  Diagnostic& refuse(const LocatedJson& node, const std::string& code, const std::string& message);
  void note(const LocatedJson& node, const std::string& text);
  /// Sets a key of the recipe. `is_default`: to DeepSpeed's default, which a value in the recipe overrides.
  void emit(const std::string& key, const nlohmann::json& value, const LocatedJson& node, const std::string& path,
            bool is_default = false);
  /// The value at a path; nullptr if it is absent, null or "auto".
  const LocatedJson* at(const std::string& path) const;
  /// The value at a path, which may be null or "auto"; nullptr if it is absent.
  const LocatedJson* present(const std::string& path) const;
  bool says(const std::string& path, const nlohmann::json& value) const;
  std::string type_of(const std::string& block) const;

  // ---- key by key
  /// Gives blocks with an old name their new name.
  void rename_blocks();
  /// Gives values that have choices the spelling of the choice, because other keys depend on them.
  void spell_choices(LocatedJson& node, const std::string& path);
  /// Notes which keys of the recipe set the values that are "auto", as far as it does not set them yet.
  void note_automatic();
  void walk(LocatedJson& node, const std::string& path);
  /// Checks only the names of the keys in a block whose values have no effect.
  void names(const DeepSpeedKey& block, const LocatedJson& node);
  void unknown(const LocatedJson& node, const std::string& block, const std::string& name);
  void note_old_name(const DeepSpeedKey& key, const LocatedJson& node);
  void judge(const DeepSpeedKey& key, LocatedJson& node);
  /// Checks and converts a value. A wrong one becomes null, which leaves it open.
  void check(const DeepSpeedKey& key, LocatedJson& node);
  static nlohmann::json option_value(const DeepSpeedKey& key, const LocatedJson& node);
  static bool switched_off(const DeepSpeedKey& key, const LocatedJson& node);
  void judge_block(const DeepSpeedKey& key, LocatedJson& node);
  /// Whether the keys of a block have no effect because of another key.
  bool in_disabled_block(const DeepSpeedKey& key, const LocatedJson& node);

  // ---- keys that depend on each other
  /// Sets a key of the recipe to the value at a path. False if there is none, or if it is `off`.
  bool pass_on(const std::string& path, const std::string& key, const nlohmann::json& off = nullptr);
  void batch();
  void product(const LocatedJson& global, const LocatedJson& micro, const LocatedJson& steps);
  void clipping();
  void precision();
  void zero();
  void tensor();
  void context();
  /// DeepSpeed's monitors as loggers. Those that the recipe itself names replace them.
  void loggers();
  void offload(const std::string& block, const std::string& option, const std::string& device_option,
               const std::string& old_name);

  // ---- optimizer and schedule
  void optimizer();
  /// Reports parameters that belong to another optimizer. `its`: the parameters of `type`.
  void parameters(const std::string& type, const std::vector<std::string>& its);
  /// DeepSpeed's default for weight decay is 0.
  void decay(const LocatedJson& type);
  void scheduler();
  /// The rate that WarmupLR and WarmupDecayLR warm up to, instead of the optimizer's: warmup_max_lr.
  void peak_rate(const LocatedJson& type);
  void warmup(const LocatedJson& type);
  void total(const LocatedJson& type);
  void decay_to_zero(const LocatedJson& type);
  void cosine(const LocatedJson& type);

  LocatedJson root_;
  const std::function<bool(const std::string&)>& given_;
  Imported meaning_;
  std::set<std::string> defaults_;  ///< keys whose value is DeepSpeed's default, because the configuration lacks it
  std::vector<std::pair<const DeepSpeedKey*, const LocatedJson*>> automatic_;  ///< keys whose value is "auto"
};

/// A float without a fraction (2e8) as an integer; other values unchanged.
nlohmann::json integral(nlohmann::json value);

}  // namespace runner
