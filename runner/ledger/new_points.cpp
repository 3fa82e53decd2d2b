#include "runner/ledger/new_points.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "runner/ledger/ledger_impl.hpp"

namespace runner {

NewPoints::NewPoints(const std::string& home, const std::string& run) : home_(home), id_(run) {
  const bool known = follow_file();
  if (!database_) throw environment_error("there is no ledger in {}", home);
  if (!known) throw usage_error("there is no run {} in {}", run, home);
}

bool NewPoints::follow_file() {
  const auto path = std::filesystem::path(home_) / "ledger.db";
  struct stat now {};
  // A file that was deleted keeps what it had, until there is another one.
  if (::stat(path.c_str(), &now) == 0 && file_ != std::pair<uint64_t, uint64_t>(now.st_dev, now.st_ino)) {
    run_ = 0;
    database_ = open_to_read(path);
    if (database_) file_ = {now.st_dev, now.st_ino};  // a new file may have no tables yet
  }
  if (!database_ || run_ != 0) return run_ != 0;
  auto row = database_->query("SELECT run FROM run WHERE id = ?", id_);
  if (row.step()) run_ = row.integer(0);
  return run_ != 0;
}

std::optional<double> NewPoints::value(const std::string& metric, int64_t step) {
  if (!follow_file()) return std::nullopt;
  auto row = database_->query("SELECT value FROM metric JOIN key USING (key) WHERE run = ? AND name = ? AND step = ?",
                              run_, metric, step);
  return row.step() ? std::optional(metric_value(row, 0)) : std::nullopt;
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
  if (!follow_file()) return {};
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
