#include "runner/sweep/executor.hpp"

#include <poll.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <thread>
#include <utility>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/launch/stop_signals.hpp"
#include "runner/selection/strategy_options.hpp"
#include "runner/sweep/failure.hpp"
#include "runner/sweep/trial_process.hpp"

namespace runner::sweep {

namespace {

using nlohmann::json;

constexpr double tick_seconds = 0.2, heartbeat_seconds = 5, fast_failure_seconds = 60;
constexpr int fast_failures_max = 3;

struct SlotState {
  const Slot* slot;
  bool busy = false, excluded = false;
  int fast_failures = 0;  ///< in a row
};

struct Running {
  int64_t trial;
  SlotState* slot;
  std::unique_ptr<TrialProcess> process;
  double started;
  double seconds_before;         ///< duration of its run before the sweep was interrupted
  json result = json::object();  ///< the last object on stdout with a status; empty if the run ended before
  bool timed_out = false;
  std::string finished_run = {};  ///< its run, if that had finished before this try
};

class Executor {
 public:
  Executor(const SweepFile& sweep, Sweeps& store, const Execution& execution)
      : sweep_(sweep),
        store_(store),
        execution_(execution),
        folder_(store.find(execution.sweep).folder),
        search_(sweep.make_search()),
        max_steps_(load_whole_recipe(sweep.recipe, {}).train.max_steps),
        begun_(steady_seconds()),
        seconds_before_(store.find(execution.sweep).seconds) {
    for (const auto& slot : execution.slots) slots_.push_back({&slot});
  }

  ExecutionEnd run() {
    restore();
    while (true) {
      handle_signals();
      ask_method([&] { search_.check(); });
      fill_slots();
      if (running_.empty()) break;
      wait();
      for (size_t i = 0; i < running_.size();)
        if (listen(running_[i]))
          ++i;
        else
          finish(i);
      tick();
    }
    if (method_failure_) std::rethrow_exception(method_failure_);
    ExecutionEnd end = how_it_ended();
    store_.end(execution_.sweep, end.status, end.message, seconds());
    return end;
  }

 private:
  // ---- the earlier history
  void restore() {
    replay_history(search_, store_, execution_.sweep);
    for (const auto& [number, state] : search_.trials())
      if (state.status == "running" && is_mine(number)) pick_up(number);
    for (int64_t number : execution_.again) pending_.push_back(number);
    for (const auto& row : store_.trials(execution_.sweep))  // was being tried again when that was interrupted
      if (search_.trials().at(row.number).status == "failed" && row.status != "failed" && is_mine(row.number))
        pending_.push_back(row.number);
    std::sort(pending_.begin(), pending_.end());
    pending_.erase(std::unique(pending_.begin(), pending_.end()), pending_.end());
  }

  bool is_mine(int64_t number) const { return !execution_.only || *execution_.only == number; }

  /// Handles a trial that had been proposed and had not ended. Its run may have ended without this process.
  void pick_up(int64_t number) {
    TrialRow row = settled(number);
    if (row.run_status == "finished")
      end_with_value(number, row.run);
    else if (to_be_pruned(search_.trials().at(number)))
      end_pruned(number);
    else if (row.run_status == "failed")
      end_failed(number, {static_cast<int>(row.run_exit_code.value_or(1)), 0, row.run_failure, row.run_message, false});
    else
      pending_.push_back(number);
  }

  /// The trial's row, once no process of an earlier sweep uses its run, or a signal stops this sweep. Such processes end shortly after
  /// their sweep; of those on a host that was lost, only the age of the heartbeat says that they are gone.
  TrialRow settled(int64_t number) {
    constexpr double soon = 5, most = heartbeat_lease_seconds + 60;
    const double begun = steady_seconds();
    bool told = false;
    while (true) {
      TrialRow row = store_.trial(execution_.sweep, number);
      handle_signals();
      if (row.run_status != "running" || stopping()) return row;
      const double waited = steady_seconds() - begun;
      if (waited > most) throw environment_error("run {} of trial {} is still running; stop it first", row.run, number);
      if (waited > soon && !std::exchange(told, true))
        note(fmt::format("waiting, at most {}, for run {} of trial {}, which an earlier process trains",
                         format_duration(most), row.run, number));
      beat();
      std::this_thread::sleep_for(std::chrono::milliseconds(waited > soon ? 1000 : 20));
      Ledger marks_lost(execution_.home, Ledger::Mode::read);
    }
  }

  // ---- starting
  void fill_slots() {
    while (!stopping()) {
      auto free = std::find_if(slots_.begin(), slots_.end(), [](const auto& s) { return !s.busy && !s.excluded; });
      if (free == slots_.end()) return;
      auto number = next_trial();
      if (!number) return;
      start(*number, *free);
    }
  }

  std::optional<int64_t> next_trial() {
    if (!pending_.empty()) {
      int64_t number = pending_.front();
      pending_.pop_front();
      return number;
    }
    if (execution_.only || (sweep_.time_s && seconds() >= *sweep_.time_s)) return std::nullopt;
    Proposal proposal;
    ask_method([&] { proposal = search_.propose(); });
    if (proposal.kind != Proposal::Kind::trial) return std::nullopt;
    store_.propose(execution_.sweep, proposal.trial.number, proposal.trial.parameters,
                   to_json(proposed(proposal.trial)));
    return proposal.trial.number;
  }

  void start(int64_t number, SlotState& slot) {
    TrialRow row = store_.trial(execution_.sweep, number);
    const TrialState& state = search_.trials().at(number);
    const bool goes_on = !row.run.empty() && has_checkpoint(row.run);
    TrialCommand command{execution_.program, arguments(state.trial, goes_on ? row.run : "", *slot.slot),
                         slot.slot->environment,
                         (fs::path(folder_) / "logs" / fmt::format("trial-{:04}.log", number)).string()};
    command.environment["RUNNER_HOME"] = execution_.home;
    store_.start(execution_.sweep, number, slot.slot->name);
    const double before = goes_on ? store_.trial_seconds(execution_.sweep, number) : 0;
    running_.push_back({.trial = number,
                        .slot = &slot,
                        .process = std::make_unique<TrialProcess>(command),
                        .started = steady_seconds(),
                        .seconds_before = before,
                        .finished_run = row.run_status == "finished" ? row.run : ""});
    slot.busy = true;
    if (execution_.hooks.on_start) execution_.hooks.on_start(state, slot.slot->name, row.tries > 0);
  }

  /// `run`: the run to continue; empty for a new one.
  std::vector<std::string> arguments(const Trial& trial, const std::string& run, const Slot& slot) const {
    std::vector<std::string> words = {"--json", "--sweep", execution_.sweep, "--trial", std::to_string(trial.number)};
    if (sweep_.uses_reports()) words.insert(words.end(), {"--report-metric", sweep_.metric});
    auto set = [&](const std::string& text) { words.insert(words.end(), {"--set", text}); };
    for (const auto& text : slot.overrides) set(text);
    if (!run.empty()) {
      words.insert(words.begin(), {"resume", run});
      return words;
    }
    words.insert(words.begin(), {"run", sweep_.recipe});
    for (const auto& text : overrides_of(trial.parameters)) set(text);
    set("run.name=" + json(fmt::format("{}-{:04}", store_.find(execution_.sweep).name, trial.number)).dump());
    if (trial.until_step) set(fmt::format("train.max_steps={}", *trial.until_step));
    if (trial.from_trial) words.insert(words.end(), {"--checkpoint", final_checkpoint(*trial.from_trial)});
    return words;
  }

  std::optional<fs::path> newest_checkpoint(const std::string& run,
                                            const std::function<void(const std::string&)>& note) const {
    const Ledger ledger(execution_.home, Ledger::Mode::read);
    return newest_good_checkpoint(fs::path(ledger.run_dir(run)) / "checkpoints", ledger.attempts(run), note);
  }
  bool has_checkpoint(const std::string& run) const { return newest_checkpoint(run, {}).has_value(); }
  std::string final_checkpoint(int64_t number) const {
    std::string run = store_.trial(execution_.sweep, number).run;
    auto found = newest_checkpoint(run, [](const std::string& text) { log::warning("{}", text); });
    if (!found) throw environment_error("trial {} (run {}) has no good checkpoint to continue from", number, run);
    return found->string();
  }

  // ---- while they run
  void wait() const {
    std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}};
    for (const auto& running : running_) watched.push_back({running.process->fd(), POLLIN, 0});
    ::poll(watched.data(), watched.size(), static_cast<int>(tick_seconds * 1000));
  }

  /// False once the trial's output has ended.
  bool listen(Running& running) {
    for (const json& object : running.process->read()) {
      if (object.contains("status")) running.result = object;
      if (object.contains("step") && object.contains("value")) report(running, object);
    }
    const double took = running.seconds_before + steady_seconds() - running.started;
    if (sweep_.trial_time_s && !running.timed_out && took > *sweep_.trial_time_s) {
      running.timed_out = true;
      running.process->stop();
    }
    return running.process->fd() >= 0;
  }

  void report(Running& running, const json& point) {
    if (stopping()) return;
    double value = point["value"].is_number() ? point["value"].get<double>() : std::nan("");
    auto entry = search_.report(running.trial, point["step"], value);
    if (!entry) return;
    store_.report(execution_.sweep, running.trial, to_json(*entry));
    if (to_be_pruned(search_.trials().at(running.trial))) running.process->stop();
  }

  /// Whether the trial was stopped before its last step. A trial that has reached its last step may finish and counts
  /// as finished.
  bool to_be_pruned(const TrialState& state) const {
    auto last = max_steps_;
    if (auto own = state.trial.parameters.find("train.max_steps"); own != state.trial.parameters.end())
      last = own->get<int64_t>();
    return state.stop_requested && (!last || state.step < *last);
  }

  void tick() {
    if (execution_.hooks.on_tick) execution_.hooks.on_tick(search_, running_.size());
    beat();
  }

  void beat() {
    const double now = steady_seconds();
    if (now - last_heartbeat_ < heartbeat_seconds) return;
    last_heartbeat_ = now;
    store_.heartbeat(execution_.sweep, seconds());
  }

  void handle_signals() {
    for (int signal : signals_.take()) {
      if (signal == SIGTSTP) {
        suspend();
        continue;
      }
      if (stopped_by_ != 0 && signal == SIGINT) {
        for (auto& running : running_) running.process->kill();
        continue;
      }
      if (stopped_by_ != 0) continue;
      stopped_by_ = signal;
      note(fmt::format("stopping {}, each with a checkpoint; Ctrl-C {}kills at once",
                       counted(std::ssize(running_), "trial"), signal == SIGINT ? "again " : ""));
      for (auto& running : running_) running.process->stop(signal);
    }
  }

  /// Handles Ctrl-Z. Trials are in other process groups, so the terminal has not stopped them. The pause counts neither
  /// as time of a trial nor as time of the sweep.
  void suspend() {
    for (const auto& running : running_) running.process->suspend();
    for (const auto& running : running_) running.process->wait_until_suspended();
    const double stopped_at = steady_seconds();
    ::raise(SIGSTOP);
    const double pause = steady_seconds() - stopped_at;
    begun_ += pause;
    for (auto& running : running_) {
      running.started += pause;
      running.process->resume();
    }
  }

  bool stopping() const { return stopped_by_ != 0 || method_failure_; }

  /// If the method fails, running trials are stopped. The error is thrown when they have ended.
  template <typename Call>
  void ask_method(Call&& call) {
    if (method_failure_) return;
    try {
      call();
    } catch (const std::exception&) {
      method_failure_ = std::current_exception();
      if (running_.empty() || stopped_by_ != 0) return;
      note(fmt::format("the sweep cannot continue; stopping {} with a checkpoint",
                       counted(std::ssize(running_), "trial")));
      for (auto& running : running_) running.process->stop();
    }
  }

  // ---- how they end
  void finish(size_t index) {
    handle_signals();  // if all processes get the signal (Slurm), the trial may end before this process handles it
    Running running = std::move(running_[index]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
    auto exit = *running.process->wait();
    running.slot->busy = false;
    double took = steady_seconds() - running.started;
    const TrialRow row = store_.trial(execution_.sweep, running.trial);
    // A process may die after its run was recorded as finished.
    const bool recorded = row.run_status == "finished" && row.run != running.finished_run;
    const bool done = (exit.signal == 0 && exit.code == 0) || recorded;
    const bool failed = running.timed_out || running.result.value("status", "") == "failed";
    if (done)
      end_with_value(running.trial, row.run);
    else if (to_be_pruned(search_.trials().at(running.trial)))
      end_pruned(running.trial);
    else if (stopping() && !failed)
      return;  // interrupted: a later resume continues it
    else
      end_failed(running.trial, exit_of(running, exit));
    const TrialState& state = search_.trials().at(running.trial);
    judge_slot(*running.slot, state, took);
    if (execution_.hooks.on_end) execution_.hooks.on_end(state, took, last_message_);
  }

  TrialExit exit_of(const Running& running, const TrialProcess::Exit& exit) const {
    TrialExit how{exit.code, exit.signal, "", "", running.timed_out};
    if (running.timed_out) {
      how.message = fmt::format("took longer than budget.trial_time = {}", format_duration(*sweep_.trial_time_s));
      return how;
    }
    auto failure = running.result.value("failure", json());
    if (failure.is_object()) {
      how.kind = failure.value("kind", "");
      how.message = failure.value("message", "");
    }
    if (how.message.empty()) how.message = unexplained(exit, running.process->log_tail());
    return how;
  }

  /// The message for a process that reported no reason. Its first line must tell how it ended.
  static std::string unexplained(const TrialProcess::Exit& exit, const std::string& log_tail) {
    auto how = exit.signal != 0 ? fmt::format("was killed by signal {}", exit.signal)
                                : fmt::format("exited with code {} and reported no reason", exit.code);
    return log_tail.empty() ? how : how + "\nthe end of its log:\n" + log_tail;
  }

  void end_pruned(int64_t number) {
    const TrialState& state = search_.trials().at(number);
    const double value = state.value.value_or(std::nan(""));
    keep_end(number, "pruned", value, state.step, "",
             fmt::format("pruned at step {}, where {} was {:.6g}", state.step, sweep_.metric, value));
  }

  void end_failed(int64_t number, const TrialExit& exit) {
    keep_end(number, "failed", std::nan(""), 0, failure_class(exit), exit.message);
  }

  void end_with_value(int64_t number, const std::string& run) {
    const auto summaries = store_.summaries(run);
    if (!summaries.contains(sweep_.metric)) {
      std::vector<std::string> names;
      for (const auto& [name, of_run] : summaries) names.push_back(name);
      auto near = nearest(sweep_.metric, names);
      return keep_end(number, "failed", std::nan(""), 0, "user_error",
                      fmt::format("the run has no metric \"{}\"{}; it has {}", sweep_.metric,
                                  near ? fmt::format(": did you mean \"{}\"?", *near) : "",
                                  names.empty() ? "none" : join(names, ", ")));
    }
    const auto& [step, last, min, max, best] = summaries.at(sweep_.metric);
    const double value = !sweep_.best_value ? last : sweep_.goal == Goal::min ? min : max;
    if (!std::isfinite(value))
      return keep_end(number, "failed", std::nan(""), step, "nan", fmt::format("{} is {}", sweep_.metric, value));
    keep_end(number, "finished", value, step, "", "");
  }

  void keep_end(int64_t number, const std::string& status, double value, int64_t step, const std::string& reason,
                const std::string& message) {
    HistoryEntry entry = search_.end(number, status, value, step, reason);
    store_.finish(execution_.sweep, number, {status, entry.value, step, reason, message}, to_json(entry));
    last_message_ = message;
  }

  void judge_slot(SlotState& slot, const TrialState& state, double took) {
    bool bad = state.status == "failed" && blames_device(state.reason) && took < fast_failure_seconds;
    slot.fast_failures = bad ? slot.fast_failures + 1 : 0;
    if (slot.fast_failures < fast_failures_max) return;
    slot.excluded = true;
    note(fmt::format("{} is no longer used: {} trials in a row failed on it within a minute each; the last: {}",
                     slot.slot->name, fast_failures_max, last_message_));
  }

  ExecutionEnd how_it_ended() const {
    if (stopped_by_ != 0)
      return {"interrupted", fmt::format("stopped by {}", stopped_by_ == SIGINT ? "Ctrl-C" : "SIGTERM"), stopped_by_};
    bool nowhere = std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot.excluded; });
    if (nowhere)
      return {"failed", "no device slot is left: trials in a row failed on each; the last: " + last_message_};
    if (sweep_.time_s && seconds() >= *sweep_.time_s)
      return {"finished", fmt::format("budget.time = {}", format_duration(*sweep_.time_s))};
    return {"finished", search_.limit_reached()};
  }

  void note(const std::string& text) const {
    if (execution_.hooks.on_note) execution_.hooks.on_note(text);
  }
  double seconds() const { return seconds_before_ + steady_seconds() - begun_; }

  const SweepFile& sweep_;
  Sweeps& store_;
  const Execution& execution_;
  std::string folder_;
  Search search_;
  std::optional<int64_t> max_steps_;  ///< of a trial that does not vary it
  StopSignals signals_;
  std::deque<SlotState> slots_;
  std::vector<Running> running_;
  std::deque<int64_t> pending_;
  double begun_, seconds_before_, last_heartbeat_ = 0;
  int stopped_by_ = 0;
  std::exception_ptr method_failure_;
  std::string last_message_;
};

}  // namespace

void replay_history(Search& search, const Sweeps& store, const std::string& sweep) {
  for (const auto& [trial, text] : store.history(sweep)) {
    HistoryEntry entry = history_entry_from_json(text);
    entry.trial = entry.proposal.number = trial;
    search.replay(entry);
  }
}

ExecutionEnd execute(const SweepFile& sweep, Sweeps& store, const Execution& execution) {
  return Executor(sweep, store, execution).run();
}

}  // namespace runner::sweep
