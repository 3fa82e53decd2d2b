// `strategy.config`: a configuration of another tool, as values of the layer that names it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/config/importer.hpp"
#include "runner/config/layer.hpp"

namespace runner {

class ConfigurationLayers {
 public:
  /// Mistakes go to `diagnostics`. Without an importer, strategy.config is an option like others.
  ConfigurationLayers(std::vector<Diagnostic>& diagnostics, const Importer* importer)
      : diagnostics_(diagnostics), importer_(importer) {}

  /// If the strategy takes configurations, translates `own`'s strategy.config and adds the values to `own`. A value that
  /// `own` sets itself must be equal. A value of `below` is overridden, with a note if it differs. strategy.config
  /// becomes null and is marked as `from_configuration`.
  void add(Layer& own, const Layer& below);

  /// Removes values of a configuration from `lower`. If `upper` has another configuration, removes all of them, and
  /// restores the values that they replaced. Otherwise removes the batch sizes that `upper` replaces: global batch,
  /// micro-batch and accumulation depend on each other.
  static void remove_replaced(Layer& lower, const Layer& upper);

  /// `upper`. If it comes from a configuration, it keeps the value that it replaces in `replaced`, so that it can be
  /// removed again.
  static Located over(const Located* lower, Located upper);

  /// To be called when the configuration is removed: drops its notes, and its options need not be complete.
  void forget();

  /// To be called after all layers are merged: sets the options that depend on the model, and the notes.
  void complete(Recipe& recipe);

 private:
  std::optional<LocatedJson> read(const Located& config);
  void add_value(Layer& own, const ImportedValue& value, const fs::path& folder);
  Diagnostic& report(const Origin& place, const std::string& code, const std::string& message);

  std::vector<Diagnostic>& diagnostics_;
  const Importer* importer_;
  std::vector<std::string> notes_;
  std::optional<Origin> configured_at_;
};

}  // namespace runner
