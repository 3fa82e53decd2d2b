// The interface of everything that follows a run while it goes on: the ledger, the display, files and servers with metrics.
#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/launch/first_cause.hpp"
#include "runner/ledger/ledger.hpp"

namespace runner {

/// An attempt that begins. What it refers to is valid during begin() only, except `ledger`, which outlives the listeners.
struct AttemptStart {
  const std::string& home;       ///< of the ledger
  const std::string& run;        ///< id
  fs::path folder;               ///< of the run
  const NewRun& row;             ///< what the run is: name, tags, recipe, plan; without secrets
  std::string reason;            ///< "start", "resume from FOLDER", or why it restarts
  int restart = 0;               ///< of this command; 0: it is not a restart
  int64_t from_step = 0;         ///< later points are recorded again
  bool completed = false;        ///< see Ledger::begin_attempt()
  fs::path checkpoint = {};      ///< absolute; empty: the attempt begins at step 0
  bool checkpoint_here = false;  ///< whether it is in the run's folder
  const Ledger& ledger;          ///< to read: the points up to from_step are those of earlier attempts that count
};

// The ledger's record of a run when an attempt begins, for loggers that write it again.

/// Values of one step by metric.
using StepValues = std::map<std::string, double>;

/// Calls `take` for each step of earlier attempts that counts, in their order. Needs 24 bytes of memory for each of their points.
void each_recorded_step(const AttemptStart& attempt,
                        const std::function<void(int64_t step, const StepValues& values)>& take);

/// The start of a run in Unix seconds, from its id "20261121-065403-k3f9"; now for other texts.
double start_of_run(const std::string& run);

/// Metrics that were recorded together.
struct PointGroup {
  enum class From { step, validation, hook };
  From from;
  int64_t step = 0;
  std::vector<MetricPoint> points;  ///< at least one
  const nlohmann::json& event;      ///< of the worker; see launch/events.hpp; valid during points() only

  std::optional<double> value(std::string_view name) const {
    for (const auto& point : points)
      if (point.name == name) return point.value;
    return std::nullopt;
  }
};

/// How long the end of a run waits for servers and other programs. All that listens to a run shares one, so that the waits do not add up.
struct Patience {
  using Clock = std::chrono::steady_clock;
  Clock::time_point deadline = Clock::now() + std::chrono::seconds(20);
  /// Whether the user wants to wait no longer; asked ten times a second. Once true, it stays true. Null: never.
  std::function<bool()> stop = {};

  bool over() const { return Clock::now() >= deadline || (stop && stop()); }
  Patience at_most(Clock::duration time) const { return {std::min(deadline, Clock::now() + time), stop}; }

  /// Waits until `done()`, which is asked under the lock. After a second, prints what it waits for: "1 notification to be delivered".
  /// False: it was given up.
  template <typename Done>
  bool wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, const std::string& what,
            Done&& done) const {
    constexpr std::chrono::milliseconds look_every{100}, silent_for{1000};
    const auto begun = Clock::now();
    for (bool told = false; !done(); changed.wait_for(lock, look_every)) {
      if (over()) return false;
      if (told || Clock::now() - begun < silent_for) continue;
      told = true;
      log::info("waiting for {}{}", what, stop ? " (Ctrl-C ends the wait)" : "");
    }
    return true;
  }
};

/// The end of the run, for this command.
struct RunEnd {
  const Outcome& outcome;
  std::string message = {};       ///< why it ended; empty after its last step
  nlohmann::json measured = {};   ///< see RunResult
  bool caller_tells_why = false;  ///< an error of which the caller prints the message
  Patience patience = {};         ///< for servers and other programs
};

/// A function that throws gives one warning, and the listener gets no further calls. The training goes on. Only the ledger ends it.
/// All functions are called from one thread and must not wait for disks of other machines, servers or processes.
class RunListener {
 public:
  virtual ~RunListener() = default;
  /// For the warning: "this log", "MLflow".
  virtual std::string title() const { return "this log"; }
  /// The file, folder or page for people. Empty: there is none.
  virtual std::string place() const { return ""; }
  virtual void begin(const AttemptStart&) {}
  virtual void points(const PointGroup&) {}
  /// All events of launch/events.hpp that are not points or artifacts, and "restart".
  virtual void event(const std::string& /*kind*/, const nlohmann::json& /*fields*/) {}
  /// `kind`: "checkpoint" or "artifact".
  virtual void artifact(const std::string& /*kind*/, const std::string& /*path*/, const nlohmann::json& /*fields*/) {}
  /// Called at least 5 times a second.
  virtual void tick() {}
  /// Called at the end of the run, also if begin() was not called because the run failed before its first attempt.
  virtual void end(const RunEnd&) {}
};

/// The listeners of a run. The first one, the ledger, is told first, and its failures are thrown. The others follow in the order in
/// which they were added; end() goes through them in reverse.
class RunListeners {
 public:
  explicit RunListeners(RunListener& ledger) : ledger_(ledger) {}
  void add(std::shared_ptr<RunListener> listener) { others_.push_back(std::move(listener)); }

  void begin(const AttemptStart& attempt);
  void points(const PointGroup& group);
  void event(const std::string& kind, const nlohmann::json& fields);
  void artifact(const std::string& kind, const std::string& path, const nlohmann::json& fields);
  void tick();
  /// Tells all others also if the ledger fails, and then throws its failure.
  void end(const RunEnd& end);
  /// RunListener::place() of those that have one.
  std::vector<std::string> places() const;

 private:
  template <typename Call>
  void tell_other(size_t i, Call&& call);
  template <typename Call>
  void tell(Call&& call);

  RunListener& ledger_;
  std::vector<std::shared_ptr<RunListener>> others_;  ///< null: it has failed
};

}  // namespace runner
