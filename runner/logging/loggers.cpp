#include "runner/logging/loggers.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/logging/csv_log.hpp"
#include "runner/logging/mlflow_log.hpp"
#include "runner/logging/notifier.hpp"
#include "runner/logging/tensorboard_log.hpp"
#include "runner/logging/wandb_log.hpp"

namespace runner {

namespace {

std::shared_ptr<RunListener> make_logger(const std::string& name, const Recipe& recipe, const fs::path& run_dir,
                                         Ledger& ledger) {
  if (name == "csv") return std::make_shared<CsvLog>(run_dir / "metrics.csv");
  if (name == "tensorboard") return std::make_shared<TensorBoardLog>(run_dir / "tensorboard");
  if (name == "mlflow") return std::make_shared<MlflowLog>(recipe.logging, &ledger);
  if (name == "wandb") return std::make_shared<WandbLog>(run_dir / "wandb", recipe.logging);
  RUNNER_CHECK(false, "logging.loggers = \"{}\"", name);
}

}  // namespace

void check_loggers(const Recipe& recipe) {
  const auto& loggers = recipe.logging.loggers;
  if (std::ranges::find(loggers, "mlflow") != loggers.end()) MlflowLog{recipe.logging};
  check_targets(recipe.logging.notify);
}

std::vector<std::shared_ptr<RunListener>> make_loggers(const Recipe& recipe, const fs::path& run_dir, Ledger& ledger,
                                                       const std::string& run, bool trial) {
  std::vector<std::shared_ptr<RunListener>> loggers;
  const auto targets = trial ? of_trials(recipe.logging.notify) : recipe.logging.notify;
  if (!targets.empty()) loggers.push_back(std::make_shared<Notifier>(targets, ledger, run, run_dir));
  for (const auto& name : recipe.logging.loggers) loggers.push_back(make_logger(name, recipe, run_dir, ledger));
  return loggers;
}

}  // namespace runner
