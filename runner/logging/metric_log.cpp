#include "runner/logging/metric_log.hpp"

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/logging/csv_log.hpp"
#include "runner/logging/tensorboard_log.hpp"

namespace runner {

MetricLogs::MetricLogs(const std::vector<std::string>& names, const fs::path& run_dir, const std::string& summary) {
  for (const auto& name : names) {
    if (name == "tensorboard")
      logs_.push_back(std::make_unique<TensorBoardLog>(run_dir / "tensorboard", summary));
    else if (name == "csv")
      logs_.push_back(std::make_unique<CsvLog>(run_dir / "metrics.csv"));
    else
      RUNNER_CHECK(false, "run.loggers = \"{}\"", name);
  }
}

template <typename Call>
void MetricLogs::each(Call&& call) {
  for (auto& one : logs_) {
    if (!one) continue;
    try {
      call(*one);
    } catch (const Error& error) {
      log::warning("{}; the training continues without this log", error.what());
      one.reset();
    }
  }
}

void MetricLogs::begin_attempt(int64_t step, const Ledger& ledger, const std::string& run) {
  each([&](MetricLog& one) { one.begin_attempt(step, ledger, run); });
}

void MetricLogs::add(const std::vector<MetricPoint>& points) {
  if (points.empty()) return;
  each([&](MetricLog& one) { one.add(points); });
}

std::vector<fs::path> MetricLogs::paths() const {
  std::vector<fs::path> paths;
  for (const auto& one : logs_)
    if (one) paths.push_back(one->path());
  return paths;
}

}  // namespace runner
