// A name that another tool uses for a setting: the keys of a recipe that it is translated to, or why it has no effect.
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
  /// The key gets the value.
  static Meaning same_value_of(std::string key);
  /// These values have no effect; all others are refused. Case does not matter.
  static Meaning one_of(std::vector<nlohmann::json> values);

  /// A name whose every value has no effect, for the reason in `note`.
  static ForeignName accepted(std::string name, std::string note);
  /// Another name for `key`, with the same values.
  static ForeignName renamed(std::string name, std::string key);
  /// A name that is refused with every value.
  static ForeignName refused(std::string name, std::string refusal);

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

}  // namespace runner
