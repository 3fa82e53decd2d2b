// `runner sweep status`, `best`, `importance`, `stop`.
#include <signal.h>

#include <cstdio>
#include <set>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/commands/sweep.hpp"
#include "runner/config/config.hpp"
#include "runner/report/quantity.hpp"
#include "runner/report/table.hpp"
#include "runner/sweep/importance.hpp"
#include "runner/sweep/sweep_lock.hpp"

namespace runner {

namespace {

using nlohmann::json;

struct SweepReadingOptions {
  std::string sweep = "last";
  bool json = false, all = false, toml = false, csv = false;
  std::string timeout = "10m";  ///< of stop
};

/// The command that first started the trial's run, without the options that only its sweep needs.
std::vector<std::string> words_of_trial(const json& run) {
  const json& first = run.at("attempts").at(0).at("argv");
  const auto argv = (first.is_null() ? run.at("argv") : first).get<std::vector<std::string>>();
  std::vector<std::string> words{"runner"};
  for (size_t i = 1; i < argv.size(); ++i) {
    const bool of_sweep = argv[i] == "--sweep" || argv[i] == "--trial" || argv[i] == "--report-metric";
    const bool names_it = argv[i] == "--set" && i + 1 < argv.size() && argv[i + 1].starts_with("run.name=");
    if (of_sweep || names_it)
      ++i;
    else if (argv[i] != "--json")
      words.push_back(argv[i]);
  }
  return words;
}

/// The overrides of that command that are not the trial's parameters: its devices and threads, and the last step for
/// pbt.
std::vector<std::string> device_overrides(const json& run, const json& parameters) {
  std::vector<std::string> found;
  const auto words = words_of_trial(run);
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] != "--set") continue;
    if (!parameters.contains(words[i + 1].substr(0, words[i + 1].find('=')))) found.push_back(words[i + 1]);
  }
  return found;
}

/// Whether the trial's run is missing: of a bundle with only a part of the sweep's runs, or purged.
bool run_is_elsewhere(const TrialRow& trial) {
  return trial.run.empty() && (trial.status == "finished" || trial.status == "pruned");
}

std::string number(const std::optional<double>& value) { return value ? fmt::format("{:.6g}", *value) : "-"; }

void print_sweeps(const std::vector<SweepRow>& sweeps, const Sweeps& store) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& row : sweeps) {
    auto trials = store.trials(row.id);
    const auto* best = best_trial(row, trials);
    rows.push_back({row.id, row.name, row.status, row.space.value("method", ""),
                    format_ago(row.started, wall_seconds()), std::to_string(trials.size()),
                    best ? number(best->value) : "-"});
  }
  std::fputs(format_table({{"ID"},
                           {.title = "NAME", .may_shrink = true},
                           {"STATUS"},
                           {"METHOD"},
                           {"STARTED"},
                           {"TRIALS", true},
                           {"BEST", true}},
                          rows)
                 .c_str(),
             stdout);
}

/// The class of a trial's failure and the first line of its message.
std::string why_failed(const TrialRow& trial) {
  const std::string line = first_line(trial.message);
  return trial.reason.empty() || line.empty() ? trial.reason : trial.reason + ": " + line;
}

void print_trials(const SweepRow& row, const std::vector<TrialRow>& trials) {
  json shown = sweep_json(row, trials);
  // A lost sweep may have run for longer than its last heartbeat says.
  std::printf("sweep %s (%s): %s%s, %s of %s trials ended, %s%s\n", row.id.c_str(), one_line(row.name).c_str(),
              row.status.c_str(), row.message.empty() ? "" : (" (" + one_line(row.message) + ")").c_str(),
              std::to_string(shown["counts"]["finished"].get<int64_t>() + shown["counts"]["pruned"].get<int64_t>() +
                             shown["counts"]["failed"].get<int64_t>())
                  .c_str(),
              row.space["trials"].is_null() ? "?" : row.space["trials"].dump().c_str(),
              row.status == "lost" ? "last heartbeat after " : "", format_duration(row.seconds).c_str());
  std::vector<std::vector<std::string>> rows;
  const auto* best = best_trial(row, trials);
  for (const auto& trial : trials)
    rows.push_back({std::to_string(trial.number) + (best && best->number == trial.number ? " *" : ""), trial.status,
                    number(trial.value), describe_parameters(trial.parameters), trial.slot,
                    run_is_elsewhere(trial) ? "not in this ledger" : trial.run, why_failed(trial)});
  std::string metric = row.space.value("metric", "value");
  std::fputs(format_table({{"TRIAL", true},
                           {"STATUS"},
                           {metric, true},
                           {.title = "PARAMETERS", .may_shrink = true},
                           {"SLOT"},
                           {"RUN"},
                           {.may_shrink = true}},
                          rows)
                 .c_str(),
             stdout);
}

void print_trials_csv(const std::vector<TrialRow>& trials) {
  std::set<std::string> names;
  for (const auto& trial : trials)
    for (const auto& [name, value] : trial.parameters.items()) names.insert(name);
  std::printf("trial,status,value,step,run");
  for (const auto& name : names) std::printf(",%s", csv_cell(name).c_str());
  std::printf("\n");
  for (const auto& trial : trials) {
    std::printf("%s,%s,%s,%s,%s", std::to_string(trial.number).c_str(), trial.status.c_str(),
                trial.value ? fmt::format("{}", *trial.value).c_str() : "", std::to_string(trial.step).c_str(),
                trial.run.c_str());
    for (const auto& name : names) {
      const json value = trial.parameters.value(name, json());
      std::printf(",%s", csv_cell(value.is_null()     ? ""
                                  : value.is_string() ? value.get<std::string>()
                                                      : value.dump())
                             .c_str());
    }
    std::printf("\n");
  }
}

/// Whether each trial has a process of its own (runner sweep trial).
bool is_shared(const SweepRow& row) { return row.space.value("shared", false); }

/// The trials of a sweep. If the sweep's process is gone, so are its running trials. Those of a shared sweep go one by one.
std::vector<TrialRow> trials_of(const Sweeps& store, const SweepRow& row) {
  auto trials = store.trials(row.id);
  for (auto& trial : trials)
    if (trial.status == "running" && (row.status == "lost" || (is_shared(row) && trial.run_status == "lost")))
      trial.status = "lost";
  return trials;
}

ExitCode status(const SweepReadingOptions& options) {
  Sweeps store(ledger_home(), Ledger::Mode::read);
  if (options.all) {
    const auto sweeps = store.sweeps();
    if (options.json) {
      json list = json::array();
      for (const auto& row : sweeps) list.push_back(sweep_json(row, trials_of(store, row)));
      print_json(json{{"schema", 1}, {"sweeps", list}});
    } else if (sweeps.empty()) {
      log::info("no sweeps in {} yet; start one with: runner sweep run FILE", ledger_home());
    } else {
      print_sweeps(sweeps, store);
    }
    return ExitCode::done;
  }
  const SweepRow row = store.find(options.sweep);
  const auto trials = trials_of(store, row);
  if (!options.json) {
    options.csv ? print_trials_csv(trials) : print_trials(row, trials);
    return ExitCode::done;
  }
  json list = json::array();
  for (const auto& trial : trials) list.push_back(to_json(trial));
  print_json(json{{"schema", 1}, {"sweep", sweep_json(row, trials)}, {"trials", list}});
  return ExitCode::done;
}

ExitCode best(const SweepReadingOptions& options) {
  Sweeps store(ledger_home(), Ledger::Mode::read);
  const SweepRow row = store.find(options.sweep);
  const auto trials = store.trials(row.id);
  const auto* trial = best_trial(row, trials);
  if (!trial) throw run_error("no trial of sweep {} has finished", row.id);
  if (run_is_elsewhere(*trial))
    throw usage_error(
        "trial {} of sweep {} is the best ({} {} at step {}; {}), and its run is not in this ledger: it was purged, or "
        "the "
        "bundle that the sweep came in has only some of its runs; import that of `runner export --bundle sweep:{}`",
        trial->number, row.id, row.space.value("metric", "value"), number(trial->value), trial->step,
        describe_parameters(trial->parameters), row.id);
  const json run = Ledger(ledger_home(), Ledger::Mode::read).show(trial->run);
  const std::string command = command_of_trial(*trial, run);
  if (options.json) {
    json shown = to_json(*trial);
    shown["command"] = command;
    print_json(json{{"schema", 1}, {"sweep", row.id}, {"best", shown}});
  } else if (options.toml) {
    const auto copy = (fs::path(row.folder) / "recipe.toml").string();  // with [sweep.set]; the recipe may have changed
    std::printf("%s", sweep::recipe_with(copy, device_overrides(run, trial->parameters), trial->parameters).c_str());
  } else {
    std::printf("trial %s of sweep %s: %s %s at step %s, run %s\n%s\n", std::to_string(trial->number).c_str(),
                row.id.c_str(), one_line(row.space.value("metric", "value")).c_str(), number(trial->value).c_str(),
                std::to_string(trial->step).c_str(), trial->run.c_str(), terminal_text(command).c_str());
  }
  return ExitCode::done;
}

ExitCode importance(const SweepReadingOptions& options) {
  Sweeps store(ledger_home(), Ledger::Mode::read);
  const SweepRow row = store.find(options.sweep);
  std::vector<sweep::Observation> observations;
  for (const auto& trial : store.trials(row.id))
    if (trial.status == "finished" && trial.value) observations.push_back({trial.parameters, *trial.value});
  const auto file = sweep_file_of(row);
  const auto list = sweep::importance(file.in_lua() ? sweep::observed_space(observations) : file.space, observations);
  if (options.json) {
    json shares = json::object();
    for (const auto& one : list) shares[one.parameter] = one.share;
    print_json(json{{"schema", 1},
                    {"sweep", row.id},
                    {"measure", "epsilon_squared"},
                    {"trials", observations.size()},
                    {"importance", shares}});
    return ExitCode::done;
  }
  std::printf("share of the variance of %s over %s finished trials that each parameter explains by itself\n",
              row.space.value("metric", "value").c_str(), std::to_string(observations.size()).c_str());
  std::vector<std::vector<std::string>> rows;
  for (const auto& one : list) rows.push_back({one.parameter, fmt::format("{:.0f} %", 100 * one.share)});
  std::fputs(format_table({{"PARAMETER"}, {"BY ITSELF", true}}, rows).c_str(), stdout);
  std::puts(
      "these are not parts of one whole, and may add up to more than 100 %: the values of two parameters can be "
      "correlated by chance");
  return ExitCode::done;
}

ExitCode stop(const SweepReadingOptions& options) {
  Sweeps store(ledger_home(), Ledger::Mode::read);
  SweepRow row = store.find(options.sweep);
  const auto timeout = parse_duration(options.timeout);
  if (!timeout) throw usage_error("--timeout {}: this is no duration such as 30s or 10m", options.timeout);
  const auto answer = [&](const std::string& status) {
    if (options.json) print_json({{"schema", 1}, {"sweep", row.id}, {"was", row.status}, {"status", status}});
    return ExitCode::done;
  };
  if (row.status != "running") {
    log::info("sweep {} is not running: {}", row.id, row.status);
    return answer(row.status);
  }
  if (is_shared(row) && !sweep::SweepLock::is_held_whole(row.folder))
    throw usage_error(
        "the trials of sweep {} are trained by several processes: stop each of them (jobs of Slurm: scancel)", row.id);
  const ProcessIdentity me = this_process();
  if (row.owner.host != me.host || row.owner.machine != me.machine || row.owner.boot_id != me.boot_id)
    throw usage_error("sweep {} runs as process {} on {}: stop it there", row.id, row.owner.pid, row.owner.host);
  if (row.owner.pid_namespace != me.pid_namespace)  // the pid would be another process here
    throw usage_error("sweep {} runs as process {} in another container on {}: stop it there", row.id, row.owner.pid,
                      row.owner.host);
  if (::kill(static_cast<pid_t>(row.owner.pid), SIGTERM) != 0)
    throw environment_error("cannot signal process {} of sweep {}", row.owner.pid, row.id);
  log::info("asked sweep {} (process {}) to stop; its trials write checkpoints", row.id, row.owner.pid);
  const double until = steady_seconds() + static_cast<double>(timeout->count());
  std::string status = row.status;
  for (; status == "running"; status = Sweeps(ledger_home(), Ledger::Mode::read).find(row.id).status) {
    if (steady_seconds() > until)
      throw environment_error(
          "sweep {} (process {}) still runs after {}: its trials may be writing checkpoints; `runner sweep status {}` "
          "shows them, and --timeout allows more time",
          row.id, row.owner.pid, write_duration(*timeout), row.id);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  log::info("sweep {} is {}; continue with: runner sweep resume {}", row.id, status, row.id);
  return answer(status);
}

}  // namespace

std::string command_of_trial(const TrialRow& trial, const json& run) {
  const auto colon = trial.slot.find(':');
  const std::string type = trial.slot.substr(0, colon);
  std::string line;
  if (type != "cpu" && colon != std::string::npos)
    line = fmt::format("{}_VISIBLE_DEVICES={} ", type == "cuda" ? "CUDA" : "RUNNER", trial.slot.substr(colon + 1));
  for (const auto& word : words_of_trial(run))
    line += (line.empty() || line.back() == ' ' ? "" : " ") + shell_word(word);
  return line;
}

sweep::SweepFile sweep_file_of(const SweepRow& row) {
  if (row.space.at("file").get<std::string>().ends_with(".lua") && !fs::is_directory(row.folder))
    throw usage_error("sweep {} came with a bundle, so its file in Lua is not run here", row.id);
  return sweep::parse_sweep(row.space.at("source"), row.space.at("file"),
                            (fs::path(row.folder) / "recipe.toml").string());
}

const TrialRow* best_trial(const SweepRow& row, const std::vector<TrialRow>& trials) {
  const bool greatest = row.space.value("goal", "min") == "max";
  const TrialRow* best = nullptr;
  for (const auto& trial : trials) {
    if (trial.status != "finished" || !trial.value) continue;
    if (!best || (greatest ? *trial.value > *best->value : *trial.value < *best->value)) best = &trial;
  }
  return best;
}

json sweep_json(const SweepRow& row, const std::vector<TrialRow>& trials) {
  json counts = {{"waiting", 0}, {"running", 0}, {"finished", 0}, {"pruned", 0}, {"failed", 0}};
  for (const auto& trial : trials) counts[trial.status] = counts.value(trial.status, int64_t{0}) + 1;
  const auto* best = best_trial(row, trials);
  return {{"id", row.id},
          {"name", row.name},
          {"status", row.status},
          {"message", row.message},
          {"started", row.started},
          {"ended", row.ended ? json(*row.ended) : json()},
          {"seconds", row.seconds},
          {"seed", row.seed},
          {"folder", row.folder},
          {"method", row.space.value("method", "")},
          {"metric", row.space.value("metric", "")},
          {"goal", row.space.value("goal", "")},
          {"trials", row.space.value("trials", json())},
          {"counts", counts},
          {"best", best ? to_json(*best) : json()}};
}

std::string describe_parameters(const json& parameters) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : parameters.items())
    parts.push_back(name + " = " +
                    (value.is_number_float() ? fmt::format("{:.4g}", value.get<double>()) : toml_value(value)));
  return join(parts, ", ");
}

void setup_sweep_reading(CLI::App& app, const std::shared_ptr<Action>& chosen) {
  auto options = std::make_shared<SweepReadingOptions>();
  auto verb = [&](const char* name, const char* about, ExitCode (*action)(const SweepReadingOptions&)) {
    auto* sub = app.add_subcommand(name, about);
    add_sweep_option(*sub, options->sweep);
    sub->callback([=] { *chosen = [=] { return action(*options); }; });
    return sub;
  };
  auto* state = verb("status", "Print the state of a sweep and of its trials", status);
  auto* all = state->add_flag("--all", options->all, "List all sweeps");
  state->add_flag("--csv", options->csv, "Comma-separated, a row for each trial")->excludes(all);
  auto* first = verb("best", "The best trial, as a command that trains it again, or as a recipe", best);
  first->add_flag("--toml", options->toml, "Print a recipe");
  auto* share = verb("importance", "How much of the variance each parameter explains", importance);
  for (auto* sub : {state, first, share}) add_json_option(*sub, options->json);
  auto* end = verb("stop", "Stop a running sweep; its trials write checkpoints and can be resumed", stop);
  end->add_option("--timeout", options->timeout, "How long to wait until it has stopped; default 10m")
      ->type_name("TIME");
  add_json_option(*end, options->json);
}

}  // namespace runner
