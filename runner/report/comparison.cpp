#include "runner/report/comparison.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

using nlohmann::json;

namespace {

json value_of(const ComparedRun& run, const std::string& key) {
  const auto found = run.config.find(key);
  return found == run.config.end() ? json() : *found;
}

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

double metric_of(const ComparedRun& run, const ComparedMetric& metric) {
  const auto found = run.values.find(metric.title());
  return found == run.values.end() ? std::nan("") : found->second;
}

bool is_better(double a, double b, const ComparedMetric& metric) { return metric.higher ? a > b : a < b; }

/// Numbers in their order, then texts, then nothing.
bool less(const json& a, const json& b) {
  const auto rank = [](const json& value) { return value.is_null() ? 2 : value.is_number() ? 0 : 1; };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  return a < b;
}

}  // namespace

std::vector<std::string> differing_keys(const std::vector<ComparedRun>& runs) {
  std::set<std::string> keys;
  for (const auto& run : runs)
    for (const auto& [key, value] : run.config.items())
      if (std::ranges::any_of(runs, [&](const auto& other) { return value_of(other, key) != value; })) keys.insert(key);
  return {keys.begin(), keys.end()};
}

void sort_by_interest(std::vector<std::string>& keys, const std::vector<ComparedRun>& runs) {
  const auto rank_of = [&](const std::string& key) {
    std::set<std::string> values;
    for (const auto& run : runs) values.insert(run.config.value(key, nlohmann::json()).dump());
    const bool chosen_here = key.starts_with("devices.") || last_part(key) == "micro_batch_size";
    return std::pair(chosen_here, -std::ssize(values));
  };
  std::map<std::string, std::pair<bool, ptrdiff_t>> ranks;
  for (const auto& key : keys) ranks[key] = rank_of(key);
  std::ranges::stable_sort(keys, {}, [&](const std::string& key) { return ranks[key]; });
}

std::string meant_key(const std::string& text, const std::vector<ComparedRun>& runs) {
  std::set<std::string> keys, ends;
  for (const auto& run : runs)
    for (const auto& [key, value] : run.config.items()) {
      keys.insert(key);
      if (last_part(key) == text) ends.insert(key);
    }
  if (keys.contains(text)) return text;
  if (ends.size() == 1) return *ends.begin();
  if (ends.size() > 1)
    throw usage_error("`{}` is the last part of several keys: {}", text, join_or({ends.begin(), ends.end()}));
  std::vector<std::string> similar(keys.begin(), keys.end());
  for (const auto& key : keys) similar.push_back(last_part(key));
  const auto near = nearest(text, similar);
  const auto differing = differing_keys(runs);
  throw usage_error("these runs have no key `{}`{}{}", text, near ? fmt::format(": did you mean `{}`?", *near) : "",
                    differing.empty() ? "" : fmt::format("; they differ in {}", join(differing, ", ")));
}

std::vector<std::string> key_titles(const std::vector<std::string>& keys) {
  std::vector<std::string> titles;
  for (const auto& key : keys) {
    const auto alike = [&](const std::string& other) { return last_part(other) == last_part(key); };
    titles.push_back(std::ranges::count_if(keys, alike) == 1 ? last_part(key) : key);
  }
  return titles;
}

std::optional<size_t> best_run(const std::vector<ComparedRun>& runs, const ComparedMetric& metric) {
  std::optional<size_t> best;
  for (size_t i = 0; i < runs.size(); ++i)
    if (const double value = metric_of(runs[i], metric);
        std::isfinite(value) && (!best || is_better(value, metric_of(runs[*best], metric), metric)))
      best = i;
  return best;
}

void sort_by_metric(std::vector<ComparedRun>& runs, const ComparedMetric& metric) {
  std::stable_sort(runs.begin(), runs.end(), [&](const auto& a, const auto& b) {
    const double of_a = metric_of(a, metric), of_b = metric_of(b, metric);
    if (std::isfinite(of_a) != std::isfinite(of_b)) return std::isfinite(of_a);
    return std::isfinite(of_a) && is_better(of_a, of_b, metric);
  });
}

void sort_by_key(std::vector<ComparedRun>& runs, const std::string& key, bool descending) {
  std::stable_sort(runs.begin(), runs.end(), [&](const auto& a, const auto& b) {
    const json of_a = value_of(a, key), of_b = value_of(b, key);
    if (of_a.is_null() || of_b.is_null()) return !of_a.is_null() && of_b.is_null();
    return descending ? less(of_b, of_a) : less(of_a, of_b);
  });
}

std::vector<RunGroup> grouped(const std::vector<ComparedRun>& runs, const std::vector<std::string>& keys) {
  std::vector<RunGroup> groups;
  for (size_t i = 0; i < runs.size(); ++i) {
    std::vector<json> values;
    for (const auto& key : keys) values.push_back(value_of(runs[i], key));
    const auto found = std::ranges::find(groups, values, &RunGroup::values);
    auto& group = found != groups.end() ? *found : groups.emplace_back(RunGroup{values, {}});
    group.runs.push_back(i);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return std::lexicographical_compare(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(), less);
  });
  return groups;
}

Spread spread_of(const std::vector<ComparedRun>& runs, const RunGroup& group, const ComparedMetric& metric) {
  std::vector<double> values;
  for (const size_t i : group.runs)
    if (const double value = metric_of(runs[i], metric); std::isfinite(value)) values.push_back(value);
  if (values.empty()) return {0, std::nan(""), std::nan(""), std::nan("")};
  const auto count = static_cast<double>(values.size());
  Spread spread{static_cast<int64_t>(values.size()), 0, std::nan(""), values[0]};
  for (const double value : values) {
    spread.mean += value / count;
    if (is_better(value, spread.best, metric)) spread.best = value;
  }
  if (values.size() < 2) return spread;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(squares / (count - 1));
  return spread;
}

ChartPoints mean_curve(const std::vector<ComparedRun>& runs, const RunGroup& group) {
  std::map<double, std::pair<double, size_t>> sums;
  size_t curves = 0;
  for (const size_t i : group.runs) {
    curves += runs[i].curve.empty() ? 0 : 1;
    for (const auto& [x, y] : runs[i].curve) {
      sums[x].first += y;
      ++sums[x].second;
    }
  }
  ChartPoints mean;
  for (const auto& [x, sum] : sums)
    if (sum.second == curves) mean.emplace_back(x, sum.first / static_cast<double>(curves));
  return mean;
}

}  // namespace runner
