// `strategy.config`: DeepSpeed's configuration as a layer of values under the recipe file that names it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/config/deepspeed_config.hpp"
#include "runner/config/layer.hpp"

namespace runner {

class ConfigurationLayers {
 public:
  /// Mistakes go to `diagnostics`.
  explicit ConfigurationLayers(std::vector<Diagnostic>& diagnostics) : diagnostics_(diagnostics) {}

  /// Puts what `own`'s strategy.config means beside it, if the strategy is DeepSpeed's; values that `own` has itself
  /// must be the same, those of `below` give way unless they come from --set. strategy.config becomes null and is
  /// marked as `from_configuration`.
  void add(Layer& own, const Layer& below);

  /// What a configuration gave to `lower` leaves it where `upper` brings another one, and so do batch sizes that would
  /// contradict what `upper` says of the batch: of the three numbers one follows from the others.
  static void give_way(Layer& lower, const Layer& upper);

  /// `upper` with what it lies on, if it may leave again.
  static Located over(const Located* lower, Located upper);

  /// The configuration was removed: it has no notes, and need not name a stage.
  void forget();

  /// When all layers are there: options that follow from the model, the notes.
  void complete(Recipe& recipe);

 private:
  std::optional<LocatedJson> read(const Located& config);
  void add_value(Layer& own, const DeepSpeedValue& value, const fs::path& folder);
  void check_stage(const Located& name, const Layer& own);
  Diagnostic& report(const Origin& place, const std::string& code, const std::string& message);

  std::vector<Diagnostic>& diagnostics_;
  std::vector<std::string> notes_;
  std::optional<Origin> configured_at_;
};

}  // namespace runner
