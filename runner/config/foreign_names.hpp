// Names that other tools use for keys: the recipe keys that they are translated to, or why they have no effect.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace runner {

/// A name that Lightning, DeepSpeed, Horovod, Hugging Face ... use for a setting.
struct ForeignName {
  /// Dotted keys and their values.
  using Values = std::vector<std::pair<std::string, nlohmann::json>>;
  /// Translates a value of the name to recipe keys. Empty: the value has no effect. nullopt: it is refused.
  using Meaning = std::function<std::optional<Values>(const nlohmann::json& value)>;

  /// Every value has no effect.
  static Meaning any_value();
  /// The key gets the value.
  static Meaning same_value_of(std::string key);
  /// These values have no effect; all others are refused. Case does not matter.
  static Meaning one_of(std::vector<nlohmann::json> values);

  /// A name whose every value has no effect, for the reason in `note`.
  static ForeignName accepted(std::string name, std::string note);

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

/// By name.
using ForeignNames = std::map<std::string, ForeignName>;

/// The names whose values a function translates. Those of strategies are arguments that strategies have in other tools.
std::vector<ForeignName> translated_names();
std::vector<ForeignName> translated_strategy_names();

/// Finds a name among those that strategies or importers know; nullptr: they do not know it.
using FindName = const ForeignName* (*)(const std::string& name);
/// Looks up an argument that strategies have in other tools.
const ForeignName* find_strategy_argument(const std::string& name);
/// Looks up a name among those that mean keys of recipes, then asks `more`, then looks among those of tools' files.
const ForeignName* find_foreign_name(const std::string& name, FindName more = nullptr);

/// The dotted key for a name of any section or of another tool: "lr", "learning_rate" -> "optimizer.lr".
std::optional<std::string> key_meant_by(const std::string& name, FindName more = nullptr);

}  // namespace runner
