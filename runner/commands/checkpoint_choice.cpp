#include "runner/commands/checkpoint_choice.hpp"

#include <algorithm>
#include <cmath>
#include <ranges>

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/stored_model.hpp"
#include "runner/commands/run_folder.hpp"
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

/// The step with the best finite value that the run has recorded. Empty if there is none, and for the training loss, which is that of one
/// batch.
std::optional<std::pair<int64_t, double>> best_recorded(const Ledger& ledger, const std::string& run,
                                                        const std::string& metric) {
  if (metric == "loss" || !ledger.last_value(run, metric)) return std::nullopt;
  auto points = ledger.points(run, metric);
  std::erase_if(points, [](const auto& point) { return !std::isfinite(point.second); });
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

/// How to have the checkpoint of the best step in the next run.
std::string how_to_keep(const Recipe& recipe) {
  return recipe.checkpoint.save_top_k > 0 ? "" : "; checkpoint.save_top_k = 1 keeps that of the best validation";
}

/// The newest checkpoint, for a run that measured the metric only at other steps. Empty if it never measured the metric.
std::optional<fs::path> unrated_checkpoint(const std::string& run, const fs::path& folder, const Recipe& recipe,
                                           const Ledger& ledger) {
  const auto& metric = recipe.checkpoint.monitor;
  const auto newest = newest_good_checkpoint(folder, ledger.attempts(run));
  const auto best = best_recorded(ledger, run, metric);
  if (!newest || !best) return std::nullopt;
  log::warning(
      "no good checkpoint of {} is of a step with a value of {}, so --best takes the newest one, {}; the best "
      "value was {:.6g} at step {}{}",
      run, metric, newest->filename().string(), best->second, best->first, how_to_keep(recipe));
  return newest;
}

fs::path best_checkpoint(const std::string& run, const fs::path& run_dir, const Ledger* ledger) {
  const fs::path folder = run_dir / "checkpoints";
  const auto file = run_dir / "resolved.toml";
  if (!fs::is_regular_file(file))
    throw usage_error("--best: {} has no resolved.toml, which names the metric (checkpoint.monitor)", run_dir.string());
  const auto recipe = load_recipe(file.string());
  const auto& metric = recipe.checkpoint.monitor;
  const auto attempts = ledger ? ledger->attempts(run) : Attempts();
  const auto best = best_good_checkpoint(folder, metric, attempts, [](const auto& text) { log::warning("{}", text); });
  if (best) {
    const auto better = ledger ? better_recorded(*ledger, run, metric, *best) : std::nullopt;
    log::info("the best checkpoint of {} is {}: {} {:.6g}", run, best->path.filename().string(), metric, best->value);
    if (better)
      log::warning("{} was better at step {} ({:.6g}), but there is no good checkpoint of this step{}", metric,
                   better->first, better->second, how_to_keep(recipe));
    return best->path;
  }
  const auto unrated = ledger ? unrated_checkpoint(run, folder, recipe, *ledger) : std::nullopt;
  if (unrated) return *unrated;
  if (!newest_good_checkpoint(folder, attempts))
    throw usage_error("run {} has no {}checkpoint in {}", run, names_of(run_dir).empty() ? "" : "good ",
                      folder.string());
  throw usage_error(
      "--best: no good checkpoint of run {} has a value of {} (checkpoint.monitor). A checkpoint has it if the run "
      "validated at its step. Without --best the newest checkpoint is used, and --step names another one",
      run, metric);
}

}  // namespace

void add_checkpoint_options(CLI::App& app, CheckpointChoice& choice) {
  auto* step = app.add_option("--step", choice.step, "The run's checkpoint of this step; default the newest good one");
  auto* named = app.add_option("--checkpoint", choice.checkpoint, "A checkpoint folder of the run")->excludes(step);
  app.add_flag("--best", choice.best, "The run's best good checkpoint, by checkpoint.monitor; `runner show` names it")
      ->excludes(step)
      ->excludes(named);
}

std::string run_with_checkpoint(const Ledger& ledger, const std::string& named, const CheckpointChoice& choice) {
  const std::string run = ledger.find_run(named);
  const auto usable = [&](const std::string& id) {
    return newest_good_checkpoint(fs::path(ledger.run_dir(id)) / "checkpoints", ledger.attempts(id)).has_value();
  };
  const bool any_will_do = choice.option().empty() || choice.best;
  if (!any_will_do || ledger.row(run).name != named || usable(run)) return run;
  for (const auto& row : std::views::reverse(ledger.runs()))  // the newest is the last
    if (row.name == named && !row.deleted && !row.archived && row.id != run && usable(row.id)) {
      log::info("run {} has no checkpoint; the model is that of {}, the newest run of this name that has one", run,
                row.id);
      return row.id;
    }
  return run;
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
