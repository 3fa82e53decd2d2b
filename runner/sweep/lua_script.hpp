// The coroutine of a sweep in Lua: the trials that it started, what it waits for, and the events that it has not received.
#pragma once
#include <deque>
#include <exception>
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

/// Continues as soon as an event arrives that it waits for. Events change nothing that `run` can see before it receives them. So
/// everything depends only on the order of events. Errors of the script are stored, see failure().
class LuaScript {
 public:
  explicit LuaScript(const SweepFile& sweep);
  LuaScript(const LuaScript&) = delete;

  // ---- called by the method
  void begin();
  std::optional<Trial> next_trial();  ///< the next started trial, in order
  void tell_report(int64_t number, Point point);
  void tell_end(int64_t number, const Standing& standing);
  bool ended() const { return ended_; }
  const std::exception_ptr& failure() const { return failure_; }
  void set_quiet(bool quiet) { quiet_ = quiet; }
  const ScriptTrial& trial(int64_t number) const { return trials_.at(static_cast<size_t>(number)); }

  // ---- called by the script (lua_handles.cpp); these throw ScriptMistake
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
  Events events_;  ///< not delivered yet
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
