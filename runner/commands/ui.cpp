// `runner ui`: a web page of the ledger, on this machine.
#include <memory>

#include "runner/base/text.hpp"
#include "runner/commands/build_id.hpp"
#include "runner/commands/checkpoint_choice.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/recommend.hpp"
#include "runner/commands/sweep.hpp"
#include "runner/config/config.hpp"
#include "runner/ledger/foreign_runs.hpp"
#include "runner/ledger/sweeps.hpp"
#include "runner/report/quantity.hpp"
#include "runner/report/recommendation.hpp"
#include "runner/report/run_differences.hpp"
#include "runner/selection/device_kinds.hpp"
#include "runner/selection/strategy_options.hpp"
#include "runner/sweep/importance.hpp"
#include "runner/ui/serve.hpp"

namespace runner {

namespace {

using nlohmann::json;

std::vector<std::string> kinds_of_devices() {
  std::vector<std::string> names;
  for (const auto& kind : device_kinds())
    if (kind.supported()) names.push_back(kind.name);
  return names;
}

/// Shares of the variance by parameter; null while too few trials have finished.
json shares_of(const SweepRow& row, const std::vector<TrialRow>& trials) {
  std::vector<sweep::Observation> observations;
  for (const auto& trial : trials)
    if (trial.status == "finished" && trial.value) observations.push_back({trial.parameters, *trial.value});
  const auto shares = [&](const sweep::Space& space) {
    json list = json::object();
    for (const auto& one : sweep::importance(space, observations)) list[one.parameter] = one.share;
    return list;
  };
  try {
    const auto file = sweep_file_of(row);
    if (!file.in_lua()) return shares(file.space);
  } catch (const Error&) {
    // The sweep's file is of another version, or its folder was deleted. The trials say which values there were.
  }
  try {
    return shares(sweep::observed_space(observations));
  } catch (const Error&) {
    return nullptr;
  }
}

/// How the axis of each parameter of the recorded space is divided. A sweep in Lua has none.
json scales_of(const SweepRow& row) {
  json scales = json::object();
  try {
    const auto file = sweep_file_of(row);
    for (const auto& parameter : file.space.parameters())
      scales[parameter.name] = parameter.kind == sweep::Parameter::Kind::choice ? "category"
                               : parameter.log                                  ? "log"
                                                                                : "value";
  } catch (const Error&) {
    // The sweep's file is of another version, or its folder was deleted.
  }
  return scales;
}

json sweep_summary(const SweepRow& row, const std::vector<TrialRow>& trials) {
  json summary{{"importance", shares_of(row, trials)}, {"scales", scales_of(row)}, {"best", nullptr}};
  if (const auto* best = best_trial(row, trials)) {
    summary["best"] = to_json(*best);
    if (!best->run.empty()) {
      const Ledger ledger(ledger_home(), Ledger::Mode::read);
      summary["best"]["command"] = command_of_trial(*best, ledger.show(best->run));
    }
  }
  return summary;
}

/// The keys that the user gave for a run, in its recipe or otherwise, as a recipe. Values that were decided for the run's devices are
/// left out, because they are to be decided for others.
std::string given_recipe(const json& run) {
  std::string text;
  for (const auto& [key, origin] : run["origins"].items()) {
    const std::string from = origin.is_string() ? origin.get<std::string>() : "";
    if (from == "default" || from.starts_with("decided") || key == "extends") continue;
    json::json_pointer place;
    std::vector<std::string> names;
    for (const auto& part : split(key, '.')) {
      place /= part;
      names.push_back(toml_key(part));
    }
    if (run["config"].contains(place) && !run["config"][place].is_null())
      text += join(names, ".") + " = " + toml_value(run["config"][place]) + "\n";
  }
  return text;
}

/// A record that came from elsewhere is data for ever: to show a plan of it runs no library and no script that it names, and tells it no
/// variable of this process.
void refuse_code_of_strangers(const json& run) {
  const auto from = imported_from(ledger_home(), plain(run["id"]));
  if (from.empty()) return;
  for (const auto& [key, value] : flattened(run["config"])) {
    const std::string text = plain(value);
    const bool is_code = key.ends_with(".plugin") || key.starts_with("plugins.") || text.find("${env:") != text.npos ||
                         text.find(".lua") != text.npos || text.find("lua:") != text.npos;
    if (is_code && !value.is_null() && !value.empty())
      throw usage_error(
          "run {} was imported from {}, so its {} = {} is not used here: plan its recipe with runner "
          "recommend FILE, if you trust it",
          plain(run["id"]), from, key, toml_value(value));
  }
}

json recommend_for(const json& run, const ui::ImaginedDevices& devices) {
  refuse_code_of_strangers(run);
  RecommendOptions options;
  options.recipe = "recipe.toml";
  options.device_kind = devices.kind;
  options.devices = devices.devices;
  options.num_nodes = devices.num_nodes;
  options.host_memory = devices.host_memory;
  json found;
  with_recommendation(options, parse_recipe(given_recipe(run), options.recipe, {}, reader_help()),
                      [&](const Recommendation& recommendation) {
                        found = recommendation_json(recommendation);
                        found["devices"] = recommendation.devices;
                        found["shortfall"] = recommendation.shortfall;
                        return ExitCode::done;
                      });
  return found;
}

ui::Hooks ui_hooks() {
  return {.recommend = recommend_for,
          .device_kinds = kinds_of_devices,
          .sweep_summary = sweep_summary,
          .best_checkpoint = [](const Ledger& ledger, const json& run) { return best_checkpoint_of(ledger, run); },
          .event_text = [](const json& event) { return event_text(event, /*with_rank=*/false); },
          .version = build_id()};
}

}  // namespace

Action setup_ui(CLI::App& app) {
  auto options = std::make_shared<ui::UiOptions>();
  app.add_option(
         "--host", options->host,
         "Address to listen on; others than this machine's loopback are reached by other machines, without encryption")
      ->capture_default_str();
  app.add_option("--port", options->port, fmt::format("Port; default: the first free one from {} on", ui::default_port))
      ->check(CLI::Range(1, 65535));
  app.add_flag("--read-only", options->access.read_only, "The page can change nothing: no tags, notes, archive, stop");
  app.add_flag("--open-read", options->access.open_read,
               "Reading needs no token: all users of this machine can read all runs");
  app.footer("Prints the page's address. Its part after # is the token, which reading and changes need.");
  return [options] {
    options->home = ledger_home();
    ui::serve(*options, ui_hooks());
    return ExitCode::done;
  };
}

}  // namespace runner
