// The table of `runner compare`: runs side by side, by the keys in which they differ, or in groups.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/report/chart.hpp"

namespace runner {

/// A run to compare.
struct ComparedRun {
  std::string id, name, status;
  int64_t steps = 0;
  nlohmann::json config = {};   ///< {dotted key: value}
  nlohmann::json origins = {};  ///< {dotted key: where its value comes from}, as far as it is known
  std::map<std::string, double> values =
      {};                  ///< of the metrics to compare, by the title of their column; NaN: not finite
  ChartPoints curve = {};  ///< of the first metric, for the sparkline
};

/// A metric to compare, as a column.
struct ComparedMetric {
  std::string name;
  bool best = false;    ///< its best value instead of its last
  bool higher = false;  ///< a larger value is better
  std::string title() const { return best ? "best " + name : name; }
};

/// The dotted keys whose values are not the same in all runs, in alphabetical order. A run without a key differs from one with it.
std::vector<std::string> differing_keys(const std::vector<ComparedRun>& runs);

/// Puts the keys first that have the most values in these runs, and last what the runner chooses by the machine and the strategy.
void sort_by_interest(std::vector<std::string>& keys, const std::vector<ComparedRun>& runs);

/// The key that a text means: a dotted key of one of the runs, or the last part of only one. Throws Error(usage) with the nearest key.
std::string meant_key(const std::string& text, const std::vector<ComparedRun>& runs);

/// Titles for columns of keys: the last part, where no other key of the list has it.
std::vector<std::string> key_titles(const std::vector<std::string>& keys);

/// The index of the best run by the metric; nothing if none has a finite value.
std::optional<size_t> best_run(const std::vector<ComparedRun>& runs, const ComparedMetric& metric);

/// Best first; runs without a finite value come last.
void sort_by_metric(std::vector<ComparedRun>& runs, const ComparedMetric& metric);
/// By the value of a dotted key: numbers before texts, runs without it last.
void sort_by_key(std::vector<ComparedRun>& runs, const std::string& key, bool descending);

/// Runs with equal values of some keys.
struct RunGroup {
  std::vector<nlohmann::json> values;  ///< of the keys; null: the runs do not have it
  std::vector<size_t> runs;            ///< indices
};
/// The groups are in the order of the values.
std::vector<RunGroup> grouped(const std::vector<ComparedRun>& runs, const std::vector<std::string>& keys);

/// The spread of the finite values of a group.
struct Spread {
  int64_t count = 0;
  double mean = 0, deviation = 0, best = 0;  ///< the sample's standard deviation; NaN for a single value
};
Spread spread_of(const std::vector<ComparedRun>& runs, const RunGroup& group, const ComparedMetric& metric);
/// The mean of the curves at the steps that all runs of the group with a curve have.
ChartPoints mean_curve(const std::vector<ComparedRun>& runs, const RunGroup& group);

}  // namespace runner
