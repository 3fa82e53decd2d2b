#include "runner/logging/loggers.hpp"

#include "runner/base/error.hpp"
#include "runner/logging/csv_log.hpp"
#include "runner/logging/tensorboard_log.hpp"

namespace runner {

std::vector<std::shared_ptr<RunListener>> make_loggers(const Recipe& recipe, const fs::path& run_dir) {
  std::vector<std::shared_ptr<RunListener>> loggers;
  for (const auto& name : recipe.run.loggers) {
    if (name == "tensorboard")
      loggers.push_back(std::make_shared<TensorBoardLog>(run_dir / "tensorboard"));
    else if (name == "csv")
      loggers.push_back(std::make_shared<CsvLog>(run_dir / "metrics.csv"));
    else
      RUNNER_CHECK(false, "run.loggers = \"{}\"", name);
  }
  return loggers;
}

}  // namespace runner
