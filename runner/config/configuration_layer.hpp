// `strategy.config`: a configuration of another tool. Its values belong to the layer that names it, and must not contradict it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/config/importer.hpp"
#include "runner/config/layer.hpp"

namespace runner {

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
