// Names that other tools use for keys: the recipe keys that they are translated to, or why they have no effect.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace runner {

/// A name that Lightning, DeepSpeed, Horovod, Hugging Face ... use.
struct ForeignName {
  /// Dotted keys and their values.
  using Values = std::vector<std::pair<std::string, nlohmann::json>>;
  /// Translates a value of the name to recipe keys. Empty: the value has no effect. nullopt: it is refused.
  using Meaning = std::function<std::optional<Values>(const nlohmann::json& value)>;

  /// Every value has no effect.
  static Meaning any_value();
  /// These values have no effect; all others are refused. Case does not matter.
  static Meaning one_of(std::vector<nlohmann::json> values);

  std::string name;             ///< "checkpoint.mode" if it has this meaning in one section only
  std::string key = "";         ///< dotted key of the recipe, for messages; empty: none
  bool only_suggested = false;  ///< the name is unknown, and the message suggests `key`
  bool in_strategy = true;      ///< translated in [strategy]; false: a strategy has an option of this name
  Meaning meaning = {};         ///< null: every value is refused
  std::string note = "";        ///< printed when the name is accepted
  std::string refusal = "";     ///< the reason in the message when a value is refused
  /// The sections in which the name has this meaning; "" stands for keys outside the sections. Empty: in all.
  std::vector<std::string> sections = {};
};

/// nullptr if the table does not have the name.
const ForeignName* find_foreign_name(const std::string& name);

/// The dotted key for a name of any section or of another tool: "lr", "learning_rate" -> "optimizer.lr".
std::optional<std::string> key_meant_by(const std::string& name);

}  // namespace runner
