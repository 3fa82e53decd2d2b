#include "runner/sweep/importance.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "runner/base/error.hpp"

namespace runner::sweep {

namespace {

constexpr size_t observations_min = 8, bins_max = 6, each_min = 4;

/// The bin of each observation.
std::vector<size_t> bins_of(const Parameter& parameter, const std::vector<Observation>& observations) {
  std::vector<double> active;
  for (const auto& one : observations)
    if (one.parameters.contains(parameter.name)) active.push_back(parameter.unit(one.parameters.at(parameter.name)));
  std::sort(active.begin(), active.end());
  size_t count = std::clamp<size_t>(active.size() / each_min, 2, bins_max);
  std::vector<size_t> bins;
  for (const auto& one : observations) {
    auto value = one.parameters.find(parameter.name);
    if (value == one.parameters.end()) {
      bins.push_back(0);
    } else if (parameter.kind == Parameter::Kind::choice) {
      bins.push_back(1 + parameter.choice_index(*value));
    } else {  // by rank; equal values share a bin
      auto below = std::lower_bound(active.begin(), active.end(), parameter.unit(*value)) - active.begin();
      bins.push_back(1 + static_cast<size_t>(below) * count / active.size());
    }
  }
  return bins;
}

double epsilon_squared(const std::vector<size_t>& bins, const std::vector<Observation>& observations) {
  struct Sum {
    double n = 0, total = 0;
  };
  std::map<size_t, Sum> sums;
  double n = static_cast<double>(bins.size()), mean = 0, all = 0, between = 0;
  for (const auto& one : observations) mean += one.value / n;
  for (size_t i = 0; i < bins.size(); ++i) {
    sums[bins[i]].n += 1;
    sums[bins[i]].total += observations[i].value - mean;
    all += std::pow(observations[i].value - mean, 2);
  }
  for (const auto& [bin, sum] : sums) between += sum.total * sum.total / sum.n;
  double groups = static_cast<double>(sums.size());
  if (all <= 0 || groups < 2 || n <= groups) return 0;
  double within_mean = (all - between) / (n - groups);
  return std::clamp((between - (groups - 1) * within_mean) / all, 0.0, 1.0);
}

}  // namespace

std::vector<Importance> importance(const Space& space, const std::vector<Observation>& observations) {
  if (observations.size() < observations_min)
    throw usage_error("importance needs {} completed trials, and there are {}", observations_min, observations.size());
  std::vector<Importance> list;
  for (const auto& parameter : space.parameters())
    list.push_back({parameter.name, epsilon_squared(bins_of(parameter, observations), observations)});
  std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.share > b.share; });
  return list;
}

Space observed_space(const std::vector<Observation>& observations) {
  std::map<std::string, std::set<nlohmann::json>> seen;  // numbers in their order
  for (const auto& one : observations)
    for (const auto& [name, value] : one.parameters.items()) seen[name].insert(value);
  std::vector<Parameter> parameters;
  for (const auto& [name, values] : seen) {
    Parameter parameter;
    parameter.name = name;
    if (std::all_of(values.begin(), values.end(), [](const auto& value) { return value.is_number(); })) {
      parameter.low = *values.begin();
      parameter.high = *values.rbegin();
    } else {
      parameter.kind = Parameter::Kind::choice;
      parameter.choices.assign(values.begin(), values.end());
    }
    parameters.push_back(std::move(parameter));
  }
  return Space(std::move(parameters));
}

}  // namespace runner::sweep
