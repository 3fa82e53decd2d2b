// Other tools' names for what a recipe says: the keys that they mean here, or why they have nothing to do.
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
  /// What a value of the name means here; empty: it changes nothing; nullopt: it is refused.
  using Meaning = std::function<std::optional<Values>(const nlohmann::json& value)>;

  std::string name;
  std::string key = "";         ///< ours, for messages; empty: none
  bool only_suggested = false;  ///< the name is unknown, and the message suggests `key`
  bool in_strategy = true;      ///< [strategy] may have it; false: a strategy has an option of this name
  Meaning meaning = {};         ///< none: every value is refused
  std::string note = "";        ///< printed when the name is accepted
  std::string refusal = "";     ///< the rest of the message when it is not
};

/// nullptr for a name that nobody uses, or one of ours.
const ForeignName* find_foreign_name(const std::string& name);

/// The dotted key for a name that is another section's or another tool's: "lr", "learning_rate" -> "optimizer.lr".
std::optional<std::string> key_meant_by(const std::string& name);

}  // namespace runner
