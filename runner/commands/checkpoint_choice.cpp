#include "runner/commands/checkpoint_choice.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/stored_model.hpp"
#include "runner/commands/needed_folder.hpp"
#include "runner/config/config.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

namespace {

/// The names of the run's checkpoints.
std::vector<std::string> names_of(const fs::path& run_dir) {
  std::vector<std::string> names;
  for (const auto& path : list_checkpoints(run_dir / "checkpoints")) names.push_back(path.filename().string());
  return names;
}

fs::path checkpoint_of_step(int64_t step, const std::string& run, const fs::path& run_dir) {
  const auto names = names_of(run_dir);
  const auto name = checkpoint_name(step);
  if (std::ranges::find(names, name) == names.end())
    throw usage_error("--step {}: run {} has no such checkpoint; it has {}", step, run,
                      names.empty() ? "none" : join(names, ", "));
  return run_dir / "checkpoints" / name;
}

/// The step with the best value that the run has recorded. Empty if there is none, and for the training loss, which is that of one batch.
std::optional<std::pair<int64_t, double>> best_recorded(const Ledger& ledger, const std::string& run,
                                                        const std::string& metric) {
  if (metric == "loss" || !ledger.last_value(run, metric)) return std::nullopt;
  auto points = ledger.points(run, metric);
  std::erase_if(points, [](const auto& point) { return std::isnan(point.second); });
  if (points.empty()) return std::nullopt;
  const bool higher = higher_is_better(metric);
  return *std::ranges::min_element(points, {},
                                   [&](const auto& point) { return higher ? -point.second : point.second; });
}

/// best_recorded() if it is better than `found`, so that its checkpoint is gone, damaged or was never written.
std::optional<std::pair<int64_t, double>> better_recorded(const Ledger& ledger, const std::string& run,
                                                          const std::string& metric, const RatedCheckpoint& found) {
  const auto best = best_recorded(ledger, run, metric);
  const bool better = best && (higher_is_better(metric) ? best->second > found.value : best->second < found.value);
  return better ? best : std::nullopt;
}

fs::path best_checkpoint(const std::string& run, const fs::path& run_dir, const Ledger* ledger) {
  const fs::path folder = run_dir / "checkpoints";
  const auto recipe = run_dir / "resolved.toml";
  if (!fs::is_regular_file(recipe))
    throw usage_error("--best: {} has no resolved.toml, which names the metric (checkpoint.monitor)", run_dir.string());
  const auto metric = load_recipe(recipe.string()).checkpoint.monitor;
  const auto attempts = ledger ? ledger->attempts(run) : Attempts();
  const auto best = best_good_checkpoint(folder, metric, attempts, [](const auto& text) { log::warning("{}", text); });
  if (!best && newest_good_checkpoint(folder, attempts))
    throw usage_error(
        "--best: no good checkpoint of run {} has a value of {} (checkpoint.monitor). A checkpoint has it if the run "
        "validated at its step, and checkpoint.save_top_k = 1 writes one at every validation. Without --best the "
        "newest checkpoint is used, and --step names another one",
        run, metric);
  if (!best)
    throw usage_error("run {} has no {}checkpoint in {}", run, names_of(run_dir).empty() ? "" : "good ",
                      folder.string());
  log::info("the best checkpoint of {} is {}: {} {:.6g}", run, best->path.filename().string(), metric, best->value);
  const auto better = ledger ? better_recorded(*ledger, run, metric, *best) : std::nullopt;
  if (better)
    log::warning(
        "{} was {:.6g} at step {}, but there is no good checkpoint of this step; with checkpoint.save_top_k = 1 a run "
        "keeps "
        "that of its best validation",
        metric, better->second, better->first);
  return best->path;
}

}  // namespace

void add_checkpoint_options(CLI::App& app, CheckpointChoice& choice) {
  auto* step = app.add_option("--step", choice.step, "The run's checkpoint of this step; default the newest good one");
  auto* named = app.add_option("--checkpoint", choice.checkpoint, "A checkpoint folder of the run")->excludes(step);
  app.add_flag("--best", choice.best, "The run's best good checkpoint, by checkpoint.monitor; `runner show` names it")
      ->excludes(step)
      ->excludes(named);
}

fs::path chosen_checkpoint(const CheckpointChoice& choice, const std::string& run, const fs::path& run_dir,
                           const Ledger* ledger) {
  if (ledger) needed_folder(*ledger, run, "used as a model");
  if (!choice.checkpoint.empty()) return named_checkpoint(choice.checkpoint, run_dir);
  if (choice.step) return checkpoint_of_step(*choice.step, run, run_dir);
  if (choice.best) return best_checkpoint(run, run_dir, ledger);
  return place_of_run(run, run_dir, ledger ? ledger->attempts(run) : Attempts()).checkpoint;
}

nlohmann::json best_checkpoint_of(const Ledger& ledger, const nlohmann::json& run) {
  const nlohmann::json_pointer<std::string> key("/config/checkpoint/monitor");
  if (!run.contains(key) || !run.at(key).is_string()) return nullptr;
  const std::string id = run.at("id"), metric = run.at(key);
  const fs::path run_dir = run.at("run_dir").get<std::string>();
  const auto ranked = rated_checkpoints(run_dir / "checkpoints", metric, ledger.attempts(id));
  if (ranked.empty()) return nullptr;
  const auto& best = ranked.front();
  nlohmann::json shown = {{"metric", metric},
                          {"value", best.value},
                          {"step", best.step},
                          {"path", fs::path("checkpoints") / best.path.filename()}};
  if (const auto better = better_recorded(ledger, id, metric, best)) {
    shown["recorded_value"] = json_number(better->second);
    shown["recorded_step"] = better->first;
  }
  return shown;
}

}  // namespace runner
