#include "runner/train/hooks/metrics.hpp"

#include "runner/lua/hook_set.hpp"

namespace runner {

Metrics::Named& Metrics::at(std::string_view name) {
  auto found = metrics_.find(name);
  return found != metrics_.end() ? *found : *metrics_.emplace(name, Metric{}).first;
}

nlohmann::json Metrics::to_json() const {
  auto values = nlohmann::json::object();
  for (const auto& [name, metric] : metrics_)
    if (metric.value) values[name] = *metric.value;
  return values;
}

nlohmann::json Metrics::save() const {
  nlohmann::json saved = {{"rank_0", nlohmann::json::object()}, {"all_ranks", nlohmann::json::object()}};
  for (const auto& [name, metric] : metrics_)
    if (metric.value) saved[metric.rank_0 ? "rank_0" : "all_ranks"][name] = *metric.value;
  return lua::storable(std::move(saved));
}

void Metrics::load(const nlohmann::json& saved, bool is_rank_0) {
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

}  // namespace runner
