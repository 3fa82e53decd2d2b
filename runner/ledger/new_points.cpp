#include "runner/ledger/new_points.hpp"

#include <algorithm>

#include "runner/ledger/ledger_impl.hpp"

namespace runner {

NewPoints::NewPoints(const std::string& home, const std::string& run)
    : database_(open_to_read(std::filesystem::path(home) / "ledger.db")) {
  if (!database_) throw environment_error("there is no ledger in {}", home);
  auto row = database_->query("SELECT run FROM run WHERE id = ?", run);
  if (!row.step()) throw usage_error("there is no run {} in {}", run, home);
  run_ = row.integer(0);
}

NewPoints::~NewPoints() = default;

void NewPoints::skip(const std::string& metric, int64_t step) {
  int64_t& read = read_.try_emplace(metric, INT64_MIN).first->second;
  read = std::max(read, step);
}

std::vector<MetricPoint> NewPoints::next(size_t most) {
  struct Behind {
    int64_t key;
    std::string name;
    int64_t read;
  };
  std::vector<Behind> behind;
  auto last = database_->query("SELECT key, name, step FROM metric_last JOIN key USING (key) WHERE run = ?", run_);
  while (last.step()) {
    const std::string name = last.text(1);
    const int64_t read = read_.try_emplace(name, INT64_MIN).first->second;
    if (last.integer(2) > read) behind.push_back({last.integer(0), name, read});
  }
  std::vector<MetricPoint> points;
  sqlite::Statement after(
      *database_, "SELECT step, value FROM metric WHERE run = ? AND key = ? AND step > ? ORDER BY step LIMIT ?");
  for (const auto& metric : behind) {
    if (points.size() >= most) break;
    after.bind(run_, metric.key, metric.read, static_cast<int64_t>(most - points.size()));
    while (after.step()) points.push_back({metric.name, after.integer(0), metric_value(after, 1)});
    if (!points.empty() && points.back().name == metric.name) read_[metric.name] = points.back().step;
  }
  return points;
}

}  // namespace runner
