#include "runner/exchange/tensorboard_files.hpp"

#include <algorithm>
#include <map>

#include "runner/base/files.hpp"
#include "runner/logging/tensorboard_log.hpp"

namespace runner {

ExportedMetrics export_tensorboard(const Ledger& ledger, const std::vector<std::string>& runs,
                                   const std::string& output) {
  ExportedMetrics written{.runs = std::ssize(runs)};
  for (const auto& run : runs) {
    const auto shown = ledger.show(run);
    std::string folder = shown.at("name").get<std::string>() + "-" + run.substr(run.rfind('-') + 1);
    std::ranges::replace(folder, '/', '_');
    std::map<int64_t, std::vector<MetricPoint>> steps;
    for (const auto& name : ledger.metric_names(run)) {
      ++written.metrics;
      for (const auto& [step, value] : ledger.points(run, name)) {
        steps[step].push_back({.name = name, .step = step, .value = value});
        ++written.points;
      }
    }
    NewRun row;
    row.resolved = shown.at("resolved");
    TensorBoardLog log(fs::path(output) / folder);
    const std::string no_home;
    log.begin(
        {.home = no_home, .run = run, .folder = {}, .row = row, .reason = "export", .from_step = -1, .ledger = ledger});
    const nlohmann::json no_event;
    for (const auto& [step, points] : steps)
      log.points({.from = PointGroup::From::step, .step = step, .points = points, .event = no_event});
  }
  return written;
}

}  // namespace runner
