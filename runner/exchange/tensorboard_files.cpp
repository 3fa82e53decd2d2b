#include "runner/exchange/tensorboard_files.hpp"

#include <algorithm>

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
    for (const auto& name : ledger.metric_names(run)) {
      ++written.metrics;
      written.points += std::ssize(ledger.points(run, name));
    }
    NewRun row;
    row.resolved = shown.at("resolved");
    TensorBoardLog log(fs::path(output) / folder);
    const std::string no_home;
    log.begin(
        {.home = no_home, .run = run, .folder = {}, .row = row, .reason = "export", .from_step = -1, .ledger = ledger});
  }
  return written;
}

}  // namespace runner
