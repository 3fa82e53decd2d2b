// `runner sweep`: plan, run, resume, retry. The other verbs are in sweep_reading.cpp.
#include "runner/commands/sweep.hpp"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <limits>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/commands/requeued_job.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/config/config.hpp"
#include "runner/config/secret_texts.hpp"
#include "runner/devices/devices.hpp"
#include "runner/launch/cluster_plugin.hpp"
#include "runner/logging/notifier.hpp"
#include "runner/report/sweep_progress.hpp"
#include "runner/report/table.hpp"
#include "runner/report/terminal.hpp"
#include "runner/selection/strategy_options.hpp"
#include "runner/sweep/executor.hpp"
#include "runner/sweep/lua_sweep.hpp"
#include "runner/sweep/methods.hpp"
#include "runner/sweep/sweep_lock.hpp"

namespace runner {

namespace {

using nlohmann::json;

struct SweepOptions {
  std::string file, name, sweep = "last", repaired;
  std::optional<int> parallel;
  int64_t shown = 8;
  bool json = false;
};

json or_null(const std::optional<int64_t>& value) { return value ? json(*value) : json(); }

SweepCounts count(const sweep::Search& search, size_t running) {
  SweepCounts counts;
  for (const auto& [number, trial] : search.trials()) {
    counts.finished += trial.status == "finished";
    counts.pruned += trial.status == "pruned";
    counts.failed += trial.status == "failed";
  }
  counts.running = static_cast<int64_t>(running);
  counts.total = search.count();
  if (const auto* best = search.best()) {
    counts.best = best->value;
    counts.best_trial = best->trial.number;
  }
  return counts;
}

/// Throws if the plug-in of a recipe says that this process is one of several.
void refuse_several(const Placement& placement) {
  if (placement.num_nodes == 1 && placement.world_size == 1) return;
  throw usage_error(
      "{} says that this is {}, and a sweep is one process that starts the ranks of its trials on this node: start it "
      "once, outside of the job, or remove plugins.cluster_environment",
      placement.cluster,
      placement.launched ? fmt::format("rank {} of {}", placement.rank, placement.world_size)
                         : fmt::format("node {} of {}", placement.node_rank, placement.num_nodes));
}

sweep::ExecutorHooks hooks_of(const sweep::SweepFile& file, SweepProgress& progress) {
  sweep::ExecutorHooks hooks;
  hooks.on_start = [&](const sweep::TrialState& trial, const std::string& slot, bool again) {
    progress.line(fmt::format("trial {} {} on {}: {}", trial.trial.number, again ? "continues" : "begins", slot,
                              describe_parameters(trial.trial.parameters)));
  };
  hooks.on_end = [&](const sweep::TrialState& trial, double seconds, const std::string& message) {
    progress.line(describe_end(file, trial, seconds, message));
  };
  hooks.on_note = [&](const std::string& text) { progress.line(text); };
  hooks.on_tick = [&](const sweep::Search& search, size_t running) { progress.update(count(search, running)); };
  return hooks;
}

ExitCode exit_code(const sweep::ExecutionEnd& end, const std::vector<TrialRow>& trials) {
  if (end.status == "interrupted") return end.signal == SIGINT ? ExitCode::interrupted : ExitCode::preempted;
  if (end.status == "failed") return ExitCode::environment;
  bool all_failed = !trials.empty();
  for (const auto& trial : trials) all_failed = all_failed && trial.status == "failed";
  return all_failed ? ExitCode::run_failed : ExitCode::done;
}

void tell_end(const SweepRow& row, const std::vector<TrialRow>& trials, const sweep::SweepFile& file) {
  json counts = sweep_json(row, trials).at("counts");
  std::vector<std::string> parts;
  for (const auto& [status, number] : counts.items())
    if (number != 0) parts.push_back(fmt::format("{} {}", number.get<int64_t>(), status));
  log::info("sweep {} {}{}: {}", row.id, row.status, row.message.empty() ? "" : " (" + row.message + ")",
            parts.empty() ? "no trials" : join(parts, ", "));
  if (const auto* best = best_trial(row, trials))
    log::info("best {}: {:.6g}, trial {} (run {}): {}", file.metric, *best->value, best->number, best->run,
              describe_parameters(best->parameters));
  if (row.status != "finished") log::info("continue with: runner sweep resume {}", row.id);
}

/// Executes a sweep that this process owns, until its end or an interruption.
ExitCode execute_claimed(Sweeps& store, const std::string& home, const std::string& id, const sweep::SweepFile& file,
                         const SweepOptions& options, std::vector<int64_t> again = {}) {
  sweep::Execution execution{.home = home, .program = own_program(), .sweep = id, .again = std::move(again)};
  const double begun = steady_seconds(), seconds_before = store.find(id).seconds;  // heartbeats update this value
  sweep::ExecutionEnd end;
  Recipe recipe;
  try {
    recipe = load_whole_recipe(file.recipe, {});
    execution.slots = trial_slots(recipe, options.parallel ? options.parallel : file.parallel);
    SweepProgress progress;
    execution.hooks = hooks_of(file, progress);
    end = sweep::execute(file, store, execution);
  } catch (const std::exception& error) {
    store.end(id, "failed", first_line(error.what()), seconds_before + steady_seconds() - begun);
    if (file.in_lua())
      log::info("sweep {} keeps its trials; repair the file and continue with: runner sweep resume {} --file {}", id,
                id, file.file);
    throw;
  }
  const SweepRow row = store.find(id);
  const auto trials = store.trials(id);
  tell_end(row, trials, file);
  if (options.json) print_json(json{{"schema", 1}, {"sweep", sweep_json(row, trials)}});
  const ExitCode code = exit_code(end, trials);
  notify_end(recipe, row, trials, file, code);
  return code;
}

/// Loads the file with the checks of `runner check`.
sweep::SweepFile ready_sweep(const std::string& name) {
  std::vector<std::string> notes;
  auto file = load_ready_sweep(name, notes);
  for (const auto& note : notes) log::info("note: {}", note);
  return file;
}

ExitCode run(const SweepOptions& options) {
  ignore_closed_output();
  sweep::SweepFile file = ready_sweep(options.file);
  const Recipe recipe = load_whole_recipe(file.recipe, file.overrides);
  trial_slots(recipe, options.parallel ? options.parallel : file.parallel);  // may throw
  const std::string home = fs::absolute(ledger_home()).lexically_normal().string();
  Sweeps store(home, Ledger::Mode::write);
  const std::string id = store.begin(new_sweep(file, options.file, options.name));
  const auto lock = sweep::SweepLock::whole(store.find(id).folder);
  log::info("sweep {} in {}", id, store.find(id).folder);
  return execute_claimed(store, home, id, sweep_file_of(store.find(id)), options);
}

/// Replaces the sweep's Lua file by a repaired one. The repaired file must propose the same trials as those recorded.
void take_repaired(Sweeps& store, const SweepRow& row, const std::string& path) {
  const sweep::SweepFile was = sweep_file_of(row);
  if (!was.in_lua() || !sweep::is_lua_sweep(path))
    throw usage_error("--file replaces the file of a sweep written in Lua, and {} is not written in Lua",
                      was.in_lua() ? path : was.file);
  const sweep::SweepFile now =
      sweep::parse_sweep(read_file(path), path, (fs::path(row.folder) / "recipe.toml").string());
  auto same = [&](const char* key, const auto& before, const auto& after) {
    if (before != after)
      throw usage_error("{}: `{}` is not the value that the sweep began with; start a new sweep", path, key);
  };
  same("recipe", was.named_recipe, now.named_recipe);
  same("set", was.overrides, now.overrides);
  same("seed", was.seed, now.seed);
  same("metric", was.metric, now.metric);
  same("goal", was.goal, now.goal);
  same("value", was.best_value, now.best_value);
  same("reports", was.reports, now.reports);
  auto search = now.make_search();
  sweep::replay_history(search, store, row.id);
  search.check();
  json space = row.space;
  Secrets secrets;
  space["source"] = secrets.without(recipe_without_secrets(now.source, secrets));
  space["file"] = fs::absolute(path).lexically_normal().string();
  space["trials"] = or_null(search.count());
  store.set_space(row.id, space, now.source);
}

void warn_if_changed(const SweepRow& row) {
  const std::string file = row.space.at("file");
  if (sweep::is_lua_sweep(file) && fs::exists(file) && read_file(file) != row.space.at("source"))
    log::warning(
        "{0} has changed since sweep {1} began, and the sweep continues with the old version; to use the new "
        "one: runner sweep resume {1} --file {0}",
        file, row.id);
}

ExitCode resume(const SweepOptions& options, bool retry) {
  ignore_closed_output();
  const std::string home = fs::absolute(ledger_home()).lexically_normal().string();
  Sweeps store(home, Ledger::Mode::write);
  const std::string id = store.find(options.sweep).id;
  std::vector<int64_t> again;
  if (retry) {
    for (const auto& trial : store.trials(id))
      if (trial.status == "failed") again.push_back(trial.number);
    if (again.empty()) {
      log::info("no trial of sweep {} has failed", id);
      return ExitCode::done;
    }
  }
  wait_if_requeued("sweep " + id, [&] { return store.find(id).status != "running"; });
  std::optional<sweep::SweepLock> lock;
  if (const auto row = store.find(id); fs::is_directory(row.folder) && row.status != "running")
    lock = sweep::SweepLock::whole(row.folder);  // otherwise claim() throws
  store.claim(id);
  if (options.repaired.empty()) {
    warn_if_changed(store.find(id));
  } else {
    try {
      take_repaired(store, store.find(id), options.repaired);
    } catch (const std::exception& error) {
      store.end(id, "failed", first_line(error.what()), store.find(id).seconds);
      throw;
    }
  }
  return execute_claimed(store, home, id, sweep_file_of(store.find(id)), options, std::move(again));
}

/// The trials that the method proposes before it needs a result, at most `count`.
std::vector<sweep::Trial> first_trials(const sweep::SweepFile& file, int64_t count) {
  auto search = file.make_search();
  std::vector<sweep::Trial> trials;
  while (static_cast<int64_t>(trials.size()) < count) {
    auto proposal = search.propose();
    if (proposal.kind != sweep::Proposal::Kind::trial) break;
    trials.push_back(proposal.trial);
  }
  return trials;
}

std::string describe_count(const sweep::SweepFile& file, std::optional<int64_t> total) {
  std::string count = total ? counted(*total, "trial") : "";
  if (file.in_lua())
    return total ? fmt::format("at most {} as `run` proposes them", count) : "as many trials as `run` proposes";
  return fmt::format("{} by {}", total ? count : "trials until the time limit", file.method);
}

void print_trials(const sweep::SweepFile& file, const std::vector<sweep::Trial>& trials) {
  std::vector<std::string> names;
  for (const auto& parameter : file.space.parameters()) names.push_back(parameter.name);
  for (const auto& trial : trials)  // trials of a Lua sweep may set parameters that are not in the space
    for (const auto& [name, value] : trial.parameters.items())
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  std::vector<Column> columns = {{"TRIAL", true}};
  for (const auto& name : names) columns.push_back({name, true, true});
  std::vector<std::vector<std::string>> rows;
  for (const auto& trial : trials) {
    auto& row = rows.emplace_back();
    row.push_back(std::to_string(trial.number));
    for (const auto& name : names)
      row.push_back(trial.parameters.contains(name) ? toml_value(trial.parameters.at(name)) : "-");
  }
  std::fputs(format_table(columns, rows).c_str(), stdout);
}

ExitCode plan(const SweepOptions& options) {
  sweep::SweepFile file = ready_sweep(options.file);
  Recipe recipe = load_whole_recipe(file.recipe, file.overrides);
  auto slots = sweep::device_slots(recipe, facts_for(recipe), options.parallel ? options.parallel : file.parallel);
  auto total = file.make_search().count();
  auto trials = first_trials(file, options.shown);
  constexpr int64_t all = std::numeric_limits<int64_t>::max();
  const int64_t independent =
      file.in_lua() ? all : sweep::trials_without_results(file.method, file.method_options).value_or(all);
  if (std::ssize(trials) > independent) trials.resize(static_cast<size_t>(independent));
  if (options.json) {
    json list = json::array(), names = json::array();
    for (const auto& trial : trials) list.push_back({{"trial", trial.number}, {"parameters", trial.parameters}});
    for (const auto& slot : slots) names.push_back(slot.name);
    print_json(json{{"schema", 1},
                    {"method", file.method},
                    {"trials", total ? json(*total) : json()},
                    {"slots", names},
                    {"first", list}});
    return ExitCode::done;
  }
  std::printf("%s, %s at a time; %s of %s is best\n", describe_count(file, total).c_str(),
              std::to_string(slots.size()).c_str(), file.goal == sweep::Goal::min ? "the smallest" : "the greatest",
              file.metric.c_str());
  print_trials(file, trials);
  if (file.in_lua()) {
    const bool all_shown = static_cast<int64_t>(trials.size()) < options.shown;
    std::printf("%s\n", all_shown ? "the next trials depend on their results" : "and perhaps more");
    return ExitCode::done;
  }
  const int64_t count = total.value_or(0), more = count - std::ssize(trials);
  const int64_t dependent = std::max<int64_t>(0, count - independent);
  if (more > 0 && dependent > 0 && dependent < more)
    std::printf("and %s more; the last %s depend on results\n", std::to_string(more).c_str(),
                std::to_string(dependent).c_str());
  else if (more > 0)
    std::printf("and %s more%s\n", std::to_string(more).c_str(),
                dependent > 0 ? ", which depend on their results" : "");
  return ExitCode::done;
}

void add_parallel(CLI::App& app, SweepOptions& options) {
  app.add_option("--parallel", options.parallel,
                 "Trials at the same time; default: as in the file, or one for each device or group of cores")
      ->check(at_least_one());
}

}  // namespace

std::string describe_end(const sweep::SweepFile& file, const sweep::TrialState& trial, double seconds,
                         const std::string& message) {
  std::string what = fmt::format("trial {} {} after {}", trial.trial.number, trial.status, format_duration(seconds));
  if (trial.status == "failed")
    return fmt::format("{}: {}{}", what, trial.reason, message.empty() ? "" : ": " + first_line(message));
  return trial.value ? what + fmt::format(": {} {:.6g} at step {}", file.metric, *trial.value, trial.step) : what;
}

std::vector<sweep::Slot> trial_slots(const Recipe& recipe, std::optional<int> parallel) {
  auto slots = sweep::device_slots(recipe, facts_for(recipe), parallel);
  if (recipe.devices.cluster == "local") return slots;
  const Placement placement = find_placement(recipe, process_environment());
  if (placement.plugin) {
    refuse_several(placement);
    return slots;  // each trial asks the plug-in, too
  }
  if (!placement.launched) return slots;
  if (placement.world_size > 1)
    throw usage_error(
        "{} started this command {} times, and one process runs the trials: start it once (`runner submit` does, under "
        "Slurm)",
        placement.cluster, placement.world_size);
  for (auto& slot : slots) slot.overrides.emplace_back("devices.cluster=local");
  return slots;
}

NewSweep new_sweep(const sweep::SweepFile& file, const std::string& path, const std::string& name) {
  NewSweep sweep;
  sweep.name = name.empty() ? file.name : name;
  sweep.seed = file.seed;
  sweep.space = {{"source", file.source},
                 {"file", fs::absolute(path).lexically_normal().string()},
                 {"recipe", file.recipe},
                 {"set", file.overrides},
                 {"method", file.method},
                 {"metric", file.metric},
                 {"goal", file.goal == sweep::Goal::max ? "max" : "min"},
                 {"trials", or_null(file.make_search().count())}};
  sweep.recipe = print_given(load_whole_recipe(file.recipe, file.overrides));
  Secrets secrets;
  sweep.recorded_recipe = recipe_without_secrets(sweep.recipe, secrets);
  sweep.source = file.source;
  sweep.space["set"] = secrets.take_from(file.overrides);
  sweep.space["source"] = secrets.without(recipe_without_secrets(file.source, secrets));
  return sweep;
}

void notify_end(const Recipe& recipe, const SweepRow& row, const std::vector<TrialRow>& trials,
                const sweep::SweepFile& file, ExitCode code) {
  SweepEnd end{.sweep = row.id,
               .name = row.name,
               .folder = row.folder,
               .status = row.status,
               .message = row.message,
               .failed = row.status == "failed" || code == ExitCode::run_failed,
               .counts = sweep_json(row, trials).at("counts")};
  if (const auto* best = best_trial(row, trials))
    end.best = {{"trial", best->number}, {"run", best->run}, {"metric", file.metric}, {"value", *best->value}};
  try {
    notify_sweep(recipe.logging.notify, end);
  } catch (const Error& error) {  // the system has no libcurl
    log::warning("the end of the sweep is not told: {}", error.what());
  }
}

Action setup_sweep(CLI::App& app) {
  auto options = std::make_shared<SweepOptions>();
  auto chosen = std::make_shared<Action>();
  app.require_subcommand(1);
  auto verb = [&](const char* name, const char* about, auto action) {
    auto* sub = app.add_subcommand(name, about);
    sub->callback([=] { *chosen = [=] { return action(*options); }; });
    return sub;
  };
  auto* start = verb("run", "Run the trials that a sweep's file describes", run);
  start->add_option("file", options->file, "The sweep's file: TOML with a section [sweep], or Lua")->required();
  start->add_option("--name", options->name, "The sweep's name; default: that of the file");
  add_json_option(*start, options->json);
  add_parallel(*start, *options);
  auto* look = verb("plan", "Show the number of trials and the first ones, without starting any", plan);
  look->add_option("file", options->file, "The sweep's file")->required();
  look->add_option("-n", options->shown, "Number of trials to show")->capture_default_str();
  add_json_option(*look, options->json);
  add_parallel(*look, *options);
  auto* again =
      verb("resume", "Continue an interrupted sweep", [](const SweepOptions& given) { return resume(given, false); });
  auto* retry = verb("retry", "Try failed trials again and continue",
                     [](const SweepOptions& given) { return resume(given, true); });
  for (auto* sub : {again, retry}) {
    add_sweep_option(*sub, options->sweep);
    add_json_option(*sub, options->json);
    add_parallel(*sub, *options);
  }
  again->add_option("--file", options->repaired, "For a sweep in Lua: continue with this repaired file");
  setup_sweep_trial(app, chosen);
  setup_sweep_reading(app, chosen);
  return [chosen] { return (*chosen)(); };
}

}  // namespace runner
