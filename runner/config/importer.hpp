// The interface between the reader of recipes and the importers of other tools' configurations. The importers are in runner/import, which
// depends on this library, and are therefore passed in.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/located_json.hpp"

namespace runner {

/// A value that a configuration sets: of a recipe's key or, under "strategy.", of an option of the strategy.
struct ImportedValue {
  std::string key;       ///< dotted, of the recipe
  nlohmann::json value;  ///< null: the key must be unset
  Origin place;
  std::string path;          ///< dotted, in the configuration
  std::string comment = "";  ///< printed behind the value
};

struct Imported {
  std::vector<ImportedValue> values;
  std::vector<std::string> notes;  ///< keys that are ignored, and why
  std::vector<Diagnostic> diagnostics;
};

class Importer {
 public:
  virtual ~Importer() = default;
  /// "DeepSpeed".
  virtual std::string tool() const = 0;
  /// Whether the strategy of this name takes a configuration in strategy.config.
  virtual bool takes(const std::string& strategy) const = 0;
  /// Translates a configuration. `given`: whether the recipe itself sets a dotted key, in any layer.
  virtual Imported read(const LocatedJson& configuration,
                        const std::function<bool(const std::string&)>& given) const = 0;
  /// Sets the options of a strategy of the tool that depend on other keys. `configured_at`: the place of strategy.config, if
  /// the recipe has one and has no mistake so far. Mistakes go to `diagnostics`.
  virtual void complete(Recipe& recipe, const std::optional<Origin>& configured_at,
                        std::vector<Diagnostic>& diagnostics) const = 0;
};

/// The values as sections of a recipe: the notes as comments, then the sections. Options of the strategy keep their order.
std::string as_sections(const Imported& meaning);

}  // namespace runner
