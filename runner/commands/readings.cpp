#include "runner/commands/readings.hpp"

#include <algorithm>

#include "runner/base/error.hpp"

namespace runner {

namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

bool is_reading(const Ledger& ledger, const std::string& run, const std::string& name) {
  return contains(ledger.system_names(run), name) && !contains(ledger.metric_names(run), name);
}

bool are_readings(const Ledger& ledger, const std::vector<std::string>& runs, const std::vector<std::string>& names) {
  const auto read = [&](const std::string& name) {
    return std::ranges::any_of(runs, [&](const auto& run) { return is_reading(ledger, run, name); });
  };
  const auto reading = std::ranges::find_if(names, read), metric = std::ranges::find_if_not(names, read);
  if (reading != names.end() && metric != names.end())
    throw usage_error(
        "{} is a reading of the machine over seconds, and {} a metric over steps: ask for them one after the other",
        *reading, *metric);
  return reading != names.end();
}

}  // namespace runner
