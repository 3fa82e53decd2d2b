// Layers of located values, from which recipes are merged, and the configuration of another tool that a layer names.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/config/importer.hpp"
#include "runner/config/located_json.hpp"

namespace runner {

/// A value of a layer with its origin. Null: the key is unset, also if a lower layer sets it.
struct Located {
  nlohmann::json value = nullptr;
  Origin origin = {};
  fs::path folder = {};  ///< relative paths in the value are resolved against it
  bool part = false;     ///< one key of a table in --set: merged into the table of the layers below
  int level = 0;         ///< of the layer that set the value; a higher layer has a higher one
  std::shared_ptr<LocatedJson> tree = nullptr;  ///< the located value of strategy.config, if it is a table
  bool of_strategy = false;  ///< translated from a foreign name in [strategy]; removed with its options
  std::string written = "";  ///< the foreign name that means this key; empty: the recipe has the key itself
  std::string note = "";     ///< for a name of another tool: how it was translated
  std::set<std::string> unset =
      {};  ///< of strategy.config: keys and sections that it must not set, because a higher layer unset them
};

/// Dotted key -> value: "section.key", or "hooks.HOOK.option". Deeper tables are values.
using Layer = std::map<std::string, Located>;

/// Whether `upper` names a strategy, and it is not the one of `lower`.
bool replaces_strategy(const Layer& upper, const Layer& lower);
/// Removes the options of the strategy from `lower` if `upper` replaces the strategy. Returns a note that names them; empty
/// if there are none.
std::string drop_strategy(Layer& lower, const Layer& upper);

/// Merges `upper` over `lower`, both of one strategy. If `upper` sets a key on which others depend (optimizer.name,
/// lr_scheduler.name ...), the keys that no longer apply are dropped. A number of devices in --set replaces the number of CPU
/// ranks, too.
void merge(Layer& lower, const Layer& upper);

/// Sets a key of the same layer a second time.
void set_again(Located& located, Located again);

/// Reads `strategy.config`, a configuration of another tool. Its values belong to the layer that names it, and must not contradict it.
class ConfigurationLayer {
 public:
  /// Mistakes go to `diagnostics`. Without an importer, strategy.config is an option like others.
  ConfigurationLayer(std::vector<Diagnostic>& diagnostics, const Importer* importer)
      : diagnostics_(diagnostics), importer_(importer) {}

  /// Whether `layer` names a strategy that takes configurations, and a configuration for it.
  bool named_in(const Layer& layer) const;

  /// If named_in(layer), translates strategy.config, merges its values at its level except Located::unset, and sets
  /// strategy.config to null. A value of the layer that names the configuration must be equal. A value of a lower layer is
  /// overridden, with a note if it differs. `options`: also those of the strategy.
  void apply(Layer& layer, bool options = true);

  /// To be called with the recipe of the merged layers: sets the options that depend on the model, and the notes.
  void complete(Recipe& recipe);

 private:
  std::optional<LocatedJson> read(const Located& config);
  void contradict(const Located& given, const ImportedValue& value);
  Diagnostic& report(const Origin& place, const std::string& code, const std::string& message);

  std::vector<Diagnostic>& diagnostics_;
  const Importer* importer_;
  std::vector<std::string> notes_;
  std::optional<Origin> configured_at_;
};

}  // namespace runner
