#include "runner/sweep/lua_method.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "runner/sweep/lua_script.hpp"

namespace runner::sweep {

namespace {

class LuaMethod : public Method {
 public:
  explicit LuaMethod(const SweepFile& sweep) : script_(sweep) {}

  Proposal propose(int64_t number) override {
    script_.begin();
    check();
    auto next = script_.next_trial();
    if (!next) return script_.ended() ? Proposal{} : Proposal::waiting();
    RUNNER_CHECK(next->number == number, "trial {} is proposed as {}", next->number, number);
    return Proposal::of(*next);
  }
  bool wants(int64_t trial, int64_t step) const override {
    if (!script_.file().reports) return false;
    auto until = reported_.find(trial);
    return script_.trial(trial).stopped || until == reported_.end() || step > until->second;
  }
  Verdict report(int64_t trial, int64_t step, double value) override {
    if (!script_.trial(trial).stopped) script_.tell_report(trial, {step, measured(value)});
    auto& until = reported_[trial];
    until = std::max(until, step);
    return script_.trial(trial).stopped ? Verdict::stop : Verdict::go_on;
  }
  void finished(const Trial& trial, const Ending& ending) override {
    const char* status = ending.kind == Ending::Kind::completed ? "finished"
                         : ending.kind == Ending::Kind::pruned  ? "pruned"
                                                                : "failed";
    reported_[trial.number] = std::numeric_limits<int64_t>::max();
    script_.tell_end(trial.number, {status, {ending.step, measured(ending.value)}, ending.reason});
  }
  void check() override {
    if (script_.failure()) std::rethrow_exception(script_.failure());
  }
  void set_replaying(bool replaying) override { script_.set_quiet(replaying); }
  std::string why_other() const override {
    return fmt::format(
        "either {} (or a file that it requires) has changed, or its `run` depends on more than the seed and the "
        "results, such as os.time, os.clock or the order of pairs()",
        script_.file().file);
  }

 private:
  double measured(double value) const { return script_.file().goal == Goal::max ? -value : value; }

  LuaScript script_;
  std::map<int64_t, int64_t> reported_;  ///< trial -> step of its newest report; the greatest step once it has ended
};

}  // namespace

std::unique_ptr<Method> make_lua_method(const SweepFile& sweep) { return std::make_unique<LuaMethod>(sweep); }

}  // namespace runner::sweep
