// The last value of each metric of a training, by name: metrics of the trainer and of hooks.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "runner/lua/hook_set.hpp"

namespace runner {

/// Hooks log the same names in every step. A lookup of a known name allocates nothing, and the address of a metric is
/// stable.
class Metrics {
 public:
  struct Metric {
    std::optional<double> value = {};
    bool allowed = false;  ///< a hook may log under its name, which has been checked
    bool odd = false;      ///< a note about a value that is not finite was emitted
    bool rank_0 = false;   ///< last logged without a sync: only rank 0 has the value
  };
  using Named = std::pair<const std::string, Metric>;

  /// The metric of that name. Creates one without a value if there is none.
  Named& at(std::string_view name) {
    auto found = metrics_.find(name);
    return found != metrics_.end() ? *found : *metrics_.emplace(name, Metric{}).first;
  }
  /// {name: value} of the metrics that have a value.
  nlohmann::json to_json() const {
    auto values = nlohmann::json::object();
    for (const auto& [name, metric] : metrics_)
      if (metric.value) values[name] = *metric.value;
    return values;
  }

  /// Saves rank 0's metrics for a checkpoint. Every rank loads them; values that only rank 0 had are loaded if
  /// `is_rank_0`.
  nlohmann::json save() const {
    nlohmann::json saved = {{"rank_0", nlohmann::json::object()}, {"all_ranks", nlohmann::json::object()}};
    for (const auto& [name, metric] : metrics_)
      if (metric.value) saved[metric.rank_0 ? "rank_0" : "all_ranks"][name] = *metric.value;
    return lua::storable(std::move(saved));
  }

  void load(const nlohmann::json& saved, bool is_rank_0) {
    for (const char* whose : {"all_ranks", "rank_0"}) {
      const bool rank_0 = whose == std::string_view("rank_0");
      const auto values = lua::restore_stored(saved.value(whose, nlohmann::json::object()));
      for (const auto& [name, value] : values.items()) {
        auto& metric = at(name).second;
        metric.rank_0 = rank_0;
        if (!rank_0 || is_rank_0) metric.value = value.get<double>();
      }
    }
  }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, Metric, Hash, std::equal_to<>> metrics_;
};

}  // namespace runner
