// Readings of the machine in the ledger: CPU, memory, disk, network and GPUs over time.
#include <algorithm>
#include <cmath>

#include "runner/base/clock.hpp"
#include "runner/base/text.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/trained_time.hpp"

namespace runner {

void Ledger::system_samples(const std::string& run, std::vector<std::pair<std::string, double>> values) {
  const double now = wall_seconds();
  std::erase_if(values, [](const auto& value) { return !std::isfinite(value.second); });
  impl_->to_write().queue([lease = impl_->lease_of(run), now, values = std::move(values)](Batch& batch) {
    batch.system_samples(lease, now, values);
  });
}

std::vector<std::pair<double, double>> Ledger::system_curve(const std::string& run, const std::string& name) const {
  std::vector<std::pair<double, double>> curve;
  const int64_t row = impl_->row_of(run);
  auto points = impl_->database->query(
      "SELECT time, value FROM system_sample WHERE run = ? AND key = (SELECT key FROM key WHERE name = ?) ORDER BY "
      "time",
      row, name);
  while (points.step()) curve.emplace_back(points.real(0), points.real(1));
  if (!curve.empty()) return curve;
  const auto names = system_names(run);
  const auto near = nearest(name, names);
  throw usage_error("run {} has no reading \"{}\"{}", run, name,
                    near            ? "; did you mean \"" + *near + "\"?"
                    : names.empty() ? ": it has none"
                                    : "; it has " + join(names, ", "));
}

std::vector<std::pair<double, double>> Ledger::system_over_seconds(const std::string& run,
                                                                   const std::string& name) const {
  auto curve = system_curve(run, name);
  const TrainedTime trained(*impl_->database, impl_->row_of(run));
  for (auto& [time, value] : curve) time = std::round(1000 * trained.at(time)) / 1000;
  return curve;
}

std::map<std::string, SystemSummary> Ledger::system_summaries(const std::string& run) const {
  std::map<std::string, SystemSummary> summaries;
  auto rows = impl_->database->query(
      "SELECT name, count(*), avg(value), min(value), max(value) FROM system_sample JOIN key USING (key) WHERE run = ? "
      "GROUP BY key",
      impl_->row_of(run));
  while (rows.step())
    summaries[rows.text(0)] = {
        .count = rows.integer(1), .mean = rows.real(2), .min = rows.real(3), .max = rows.real(4)};
  return summaries;
}

std::vector<std::string> Ledger::system_names(const std::string& run) const {
  std::vector<std::string> names;
  const int64_t row = impl_->row_of(run);
  // The query looks up each name, instead of scanning all readings of the run.
  auto found = impl_->database->query(
      "SELECT name FROM key WHERE EXISTS (SELECT 1 FROM system_sample WHERE run = ? AND key = key.key) ORDER BY name",
      row);
  while (found.step()) names.push_back(found.text(0));
  return names;
}

}  // namespace runner
