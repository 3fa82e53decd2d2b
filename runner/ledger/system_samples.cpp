// Readings of the machine in the ledger: CPU, memory, disk, network and GPUs over time.
#include <cmath>

#include "runner/base/clock.hpp"
#include "runner/base/text.hpp"
#include "runner/ledger/ledger_impl.hpp"

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

std::vector<std::string> Ledger::system_names(const std::string& run) const {
  std::vector<std::string> names;
  const int64_t row = impl_->row_of(run);
  // One lookup for each name, instead of a scan over all readings of the run.
  auto found = impl_->database->query(
      "SELECT name FROM key WHERE EXISTS (SELECT 1 FROM system_sample WHERE run = ? AND key = key.key) ORDER BY name",
      row);
  while (found.step()) names.push_back(found.text(0));
  return names;
}

}  // namespace runner
