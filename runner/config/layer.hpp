// Layers of located values. Recipes are merged from them.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "runner/base/files.hpp"
#include "runner/config/located_json.hpp"

namespace runner {

/// A value of a layer with its origin. Null: the key is unset, also if a lower layer sets it.
struct Located {
  nlohmann::json value;
  Origin origin;
  fs::path folder;                              ///< relative paths in the value are resolved against it
  std::shared_ptr<LocatedJson> tree = nullptr;  ///< the located value of strategy.config, if it is a table
  bool from_configuration = false;              ///< the value comes from a configuration of another tool
  std::shared_ptr<Located> replaced =
      nullptr;               ///< the value that this one replaced; restored when the configuration is removed
  bool of_strategy = false;  ///< translated from a foreign name in [strategy]; removed with its options
  std::string written = "";  ///< the foreign name that means this key; empty: the recipe has the key itself
  std::string note = "";     ///< for a name of another tool: how it was translated
};

/// Dotted key -> value: "section.key", or "hooks.HOOK.option". Deeper tables are values.
using Layer = std::map<std::string, Located>;

/// Whether `upper` names a strategy, and it is not the one of `lower`.
bool replaces_strategy(const Layer& upper, const Layer& lower);
/// Removes the options of the strategy from `lower` if `upper` replaces the strategy. Returns a note that names them; empty
/// if there are none.
std::string drop_strategy(Layer& lower, const Layer& upper);

}  // namespace runner
