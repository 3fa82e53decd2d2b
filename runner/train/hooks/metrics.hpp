// The last values of a training's metrics by name: the trainer's own, and what hooks log.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace runner {

/// Hooks log the same names step after step: finding a known one allocates nothing, and a metric stays where it is.
class Metrics {
 public:
  struct Metric {
    std::optional<double> value = {};
    bool own = false;     ///< the trainer's: hooks may not log under its name
    bool odd = false;     ///< a value that is not finite has been remarked on
    bool rank_0 = false;  ///< last logged without a sync: rank 0 alone has the value
  };
  using Named = std::pair<const std::string, Metric>;

  Metrics();

  /// The metric of that name, made without a value where there is none yet.
  Named& at(std::string_view name);
  /// {name: value} of those that have one.
  nlohmann::json to_json() const;

  /// Rank 0's, for a checkpoint, as each rank takes them back: what rank 0 alone had only where `is_rank_0`.
  nlohmann::json save() const;
  void load(const nlohmann::json& saved, bool is_rank_0);

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, Metric, Hash, std::equal_to<>> metrics_;
};

}  // namespace runner
