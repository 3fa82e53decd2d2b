// `runner sweep trial`: trains one trial of a sweep whose other trials are trained by other processes, as by the jobs of an array.
#include <signal.h>

#include <algorithm>
#include <optional>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/commands/requeued_job.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/commands/sweep.hpp"
#include "runner/report/terminal.hpp"
#include "runner/selection/strategy_options.hpp"
#include "runner/sweep/executor.hpp"
#include "runner/sweep/methods.hpp"
#include "runner/sweep/sweep_lock.hpp"

namespace runner {

namespace {

using nlohmann::json;

struct TrialOptions {
  std::string file, name;
  int64_t number = 0;
  bool json = false;
};

/// Why the file's trials, or their number, are not known before the first one ends; empty if they are.
std::string why_not_shared(const sweep::SweepFile& file) {
  if (file.in_lua()) return "its `run` decides after each result which trial is next";
  if (file.uses_reports()) return fmt::format("the method {} compares trials while they run", file.method);
  const auto count = file.make_search().count();
  const auto independent = sweep::trials_without_results(file.method, file.method_options);
  if (independent && (!count || *independent < *count))
    return fmt::format("the method {} chooses {} by the results of others", file.method,
                       count ? counted(*count - *independent, "trial") : "trials");
  if (file.time_s) return "budget.time ends it before all trials have begun";
  if (!count) return "it has no number of trials (budget.trials)";
  if (file.limits.target || file.limits.no_improvement || file.limits.failures)
    return "[sweep] `stop` ends it by the results of trials";
  return "";
}

/// Refuses a sweep that did not begin as these options say.
void check_same(const SweepRow& row, const TrialOptions& options) {
  if (!row.space.value("shared", false))
    throw usage_error("sweep {} (`runner sweep run`) has one process for all of its trials: use another --name",
                      options.name);
  if (read_file(options.file) != row.space.at("source"))
    throw usage_error(
        "sweep {} began with another text of {}: use the file with which it began ({}), unchanged, or another --name",
        options.name, options.file, row.space.at("file").get<std::string>());
}

/// The id of the sweep, which the first of its processes begins.
std::string join_or_begin(Sweeps& store, const TrialOptions& options) {
  if (auto known = store.named(options.name)) return *known;
  std::vector<std::string> notes;
  const auto file = load_ready_sweep(options.file, notes);
  for (const auto& note : notes) log::info("note: {}", note);
  std::vector<FirstTrial> trials;
  for (const auto& trial : shared_trials(file))
    trials.push_back({trial.number, trial.parameters, to_json(sweep::proposed(trial))});
  NewSweep sweep = new_sweep(file, options.file, options.name);
  sweep.space["shared"] = true;
  return store.begin_shared(sweep, trials);
}

ExitCode code_of(const TrialRow& trial, const sweep::ExecutionEnd& end) {
  if (trial.status == "failed") return ExitCode::run_failed;
  if (end.status == "interrupted") return end.signal == SIGINT ? ExitCode::interrupted : ExitCode::preempted;
  return trial.status == "waiting" ? ExitCode::environment : ExitCode::done;
}

/// The trial's lock. A requeued job waits for the one of its killed process: a network filesystem keeps it for a while.
sweep::SweepLock lock_trial(const SweepRow& row, int64_t number) {
  std::optional<sweep::SweepLock> lock;
  wait_if_requeued(fmt::format("trial {} of sweep {}", number, row.id), [&] {
    try {
      lock.emplace(sweep::SweepLock::trial(row.folder, number));
    } catch (const Error& error) {
      if (error.code() != ExitCode::usage) throw;
    }
    return lock.has_value();
  });
  return lock ? std::move(*lock) : sweep::SweepLock::trial(row.folder, number);
}

/// Tells the end of the sweep, if this process has completed it.
void tell_if_complete(const Sweeps& store, const std::string& id) {
  if (!store.completed()) return;
  const SweepRow row = store.find(id);
  const auto trials = store.trials(id);
  const auto file = sweep_file_of(row);
  const bool all_failed = std::ranges::all_of(trials, [](const auto& trial) { return trial.status == "failed"; });
  notify_end(load_whole_recipe(file.recipe, {}), row, trials, file, all_failed ? ExitCode::run_failed : ExitCode::done);
}

/// Trains the trial, or continues it. Does nothing if it has ended.
sweep::ExecutionEnd train(Sweeps& store, const std::string& home, const SweepRow& row, int64_t number) {
  const auto lock = lock_trial(row, number);
  const std::string status = store.trial(row.id, number).status;
  if (status != "waiting" && status != "running") {
    log::info("trial {} of sweep {} has ended: {}", number, row.id, status);
    return {};
  }
  const auto file = sweep_file_of(row);
  sweep::Execution execution{.home = home, .program = own_program(), .sweep = row.id, .only = number};
  execution.slots = trial_slots(load_whole_recipe(file.recipe, {}), 1);
  execution.hooks.on_start = [](const sweep::TrialState& trial, const std::string& slot, bool again) {
    log::info("trial {} {} on {}: {}", trial.trial.number, again ? "continues" : "begins", slot,
              describe_parameters(trial.trial.parameters));
  };
  execution.hooks.on_end = [&](const sweep::TrialState& trial, double seconds, const std::string& message) {
    log::info("{}", describe_end(file, trial, seconds, message));
  };
  execution.hooks.on_note = [](const std::string& text) { log::info("{}", text); };
  store.join(row.id, number);
  try {
    return sweep::execute(file, store, execution);
  } catch (const std::exception& error) {
    store.end(row.id, "failed", first_line(error.what()), 0);
    throw;
  }
}

ExitCode train_one(const TrialOptions& options) {
  ignore_closed_output();
  const std::string home = fs::absolute(ledger_home()).lexically_normal().string();
  Sweeps store(home, Ledger::Mode::write);
  const SweepRow row = store.find(join_or_begin(store, options));
  check_same(row, options);
  const auto count = std::ssize(store.trials(row.id));
  if (options.number < 0 || options.number >= count)
    throw usage_error("sweep {} has no trial {}: its trials are 0 to {}", row.id, options.number, count - 1);
  log::info("sweep {} ({}) in {}", row.id, row.name, row.folder);
  const auto end = train(store, home, row, options.number);
  tell_if_complete(store, row.id);
  const TrialRow ended = store.trial(row.id, options.number);
  if (options.json) print_json(json{{"schema", 1}, {"sweep", row.id}, {"trial", to_json(ended)}});
  return code_of(ended, end);
}

}  // namespace

std::vector<sweep::Trial> shared_trials(const sweep::SweepFile& file) {
  if (const auto why = why_not_shared(file); !why.empty())
    throw usage_error("the trials of {} cannot be shared between processes: {}", file.file, why);
  auto search = file.make_search();
  std::vector<sweep::Trial> trials;
  for (auto next = search.propose(); next.kind == sweep::Proposal::Kind::trial; next = search.propose())
    trials.push_back(next.trial);
  return trials;
}

void setup_sweep_trial(CLI::App& app, const std::shared_ptr<Action>& chosen) {
  auto options = std::make_shared<TrialOptions>();
  auto* verb = app.add_subcommand(
      "trial", "Train one trial, or continue it, while other processes train others: for job arrays");
  verb->add_option("file", options->file, "The sweep's file. Its trials must not depend on results of others")
      ->required();
  verb->add_option("number", options->number, "The trial's number, from 0")->required();
  verb->add_option("--name", options->name, "The sweep's name. The first process that uses it begins the sweep")
      ->required();
  add_json_option(*verb, options->json);
  verb->callback([=] { *chosen = [=] { return train_one(*options); }; });
}

}  // namespace runner
