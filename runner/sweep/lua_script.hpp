// The function `run` of a sweep in Lua as a method: a coroutine that proposes trials and receives their results.
#pragma once
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runner/sweep/lua_sweep.hpp"
#include "runner/sweep/method.hpp"
#include "runner/sweep/sweep_file.hpp"

namespace runner::sweep {

/// A point of the metric, as measured; NaN: no number.
struct Point {
  int64_t step = 0;
  double value = 0;
};

/// The state of a trial: running, or finished, pruned or failed with its last point.
struct Standing {
  std::string status = "running";
  Point last = {};
  std::string reason = "";  ///< of a failed trial: the class of the failure

  bool over() const { return status != "running"; }
};

/// A trial as `run` knows it.
struct ScriptTrial {
  Trial trial;
  Standing standing = {};
  std::vector<Point> reports = {};
  bool stopped = false;
  std::shared_ptr<lua::Object> handle = {};
};

/// `run` receives an object with
///   sweep:try{["optimizer.lr"] = 1e-3}  starts a trial, waits for its end and returns its result
///   sweep:start{...}                    starts a trial and returns a handle of it, without waiting
///   sweep:wait(), sweep:wait(handle)    the result of the trial that ends next, or of this trial; nil if none is running
///   sweep:next_event()                  {kind = "report", trial, step, value}, or a result with kind = "end"; or nil
///   sweep:trial(number)                 the handle of a trial
///   sweep:sample()                      a random point of the file's `space`
///   sweep:best()                        the best result so far, or nil
///   sweep.seed, .metric, .goal, .running (started trials whose end `run` has not received)
/// A result is {trial, status, value, step, reason, parameters}: status is finished, pruned or failed; value is nil if there is
/// none; reason is the class of a failure. A handle has number, parameters, status, value, reason, reports() = {{step, value},
/// ...} and stop(), after which the trial ends as pruned at its next report. Reports and stop() need `reports = true`.
///
/// A trial reports each step once, in rising order, before its end. An interrupted trial that continues from a checkpoint before
/// its last report, or from the beginning, reports from the first new step on. A failed trial that is tried again reports
/// nothing: `run` receives only its end, and later sees the newest result.
///
/// Trials begin in the order in which they are started. `run` continues as soon as the result that it waits for arrives. So its
/// proposals depend only on the seed (also that of math.random) and on the results, in their order. Errors in `run` are stored,
/// and propose() and check() throw them: RecipeError at the script's line, with the calls that led there.
///
/// Events change nothing that `run` can see before it receives them. So everything depends only on the order of events.
class LuaScript final : public Method {
 public:
  explicit LuaScript(const SweepFile& sweep);
  LuaScript(const LuaScript&) = delete;

  Proposal propose(int64_t number) override;
  bool wants(int64_t trial, int64_t step) const override;
  Verdict report(int64_t trial, int64_t step, double value) override;
  void finished(const Trial& trial, const Ending& ending) override;
  void check() override;
  void set_replaying(bool replaying) override { quiet_ = replaying; }
  std::string why_other() const override;

  const ScriptTrial& trial(int64_t number) const { return trials_.at(static_cast<size_t>(number)); }

  // ---- called by the script; these throw ScriptMistake
  enum class Wanted { nothing, report_or_end, any_end, end_of_trial };
  int64_t start(const nlohmann::json& parameters, const std::string& function);
  void wait_for(Wanted wanted, int64_t trial = 0);
  void stop(int64_t number);
  nlohmann::json sample();
  nlohmann::json result(int64_t number) const;
  nlohmann::json best() const;
  std::shared_ptr<lua::Object> handle(int64_t number);
  int64_t count() const { return static_cast<int64_t>(trials_.size()); }
  int64_t in_flight() const { return in_flight_; }
  const SweepFile& file() const { return file_; }

 private:
  struct Event {
    int64_t trial;
    Standing standing;  ///< running: a report
  };
  using Events = std::deque<Event>;

  double measured(double value) const { return file_.goal == Goal::max ? -value : value; }
  void deliver();
  std::optional<nlohmann::json> answer();
  std::optional<nlohmann::json> answer_end(const std::function<bool(const Event&)>& wanted);
  nlohmann::json tell(const Event& event);
  void note_end(int64_t number, const Standing& standing);
  void go_on(const lua::Value& answer);

  const SweepFile file_;
  LuaSweep lua_;
  lua::Reference coroutine_;
  bool begun_ = false, ended_ = false, quiet_ = true;
  std::exception_ptr failure_;
  std::deque<ScriptTrial> trials_;  ///< by number
  std::deque<int64_t> unbegun_;
  std::map<int64_t, int64_t> reported_;  ///< trial -> step of its newest report; the greatest step once it has ended
  Events events_;                        ///< not delivered yet
  Wanted wanted_ = Wanted::nothing;
  int64_t wanted_trial_ = 0, in_flight_ = 0;  ///< trials in flight, whose end was not delivered
  int empty_waits_ = 0;                       ///< consecutive waits without a new event
  uint64_t samples_ = 0;
  std::optional<int64_t> best_;
};

/// The object that `run` receives, and the handle of a trial.
std::shared_ptr<lua::Object> make_sweep_object(LuaScript& script);
std::shared_ptr<lua::Object> make_trial_object(LuaScript& script, int64_t number);

}  // namespace runner::sweep
