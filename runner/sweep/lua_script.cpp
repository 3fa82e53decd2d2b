#include "runner/sweep/lua_script.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runner/base/log.hpp"
#include "runner/lua/key_places.hpp"
#include "runner/sweep/methods.hpp"
#include "runner/sweep/space_reader.hpp"

namespace runner::sweep {

using nlohmann::json;

namespace {

constexpr size_t unbegun_max = 10'000;  ///< limit on trials that wait to begin
constexpr int empty_waits_max = 100'000;

json number_or_null(double value) { return std::isfinite(value) ? json(value) : json(); }

using lua::Arguments, lua::Class, lua::Object, lua::Value;
using Wanted = LuaScript::Wanted;

struct SweepHandle {
  LuaScript* script;
};
struct TrialHandle {
  LuaScript* script;
  int64_t number;
  const ScriptTrial& trial() const { return script->trial(number); }
};

Class make_trial_class() {
  Class kind("trial");
  auto property = [&](const std::string& name, json (*read)(const TrialHandle&)) {
    kind.property(name, [read](Object& object) { return Value(read(object.as<TrialHandle>())); });
  };
  property("number", [](const TrialHandle& handle) { return json(handle.number); });
  property("parameters", [](const TrialHandle& handle) { return handle.trial().trial.parameters; });
  property("status", [](const TrialHandle& handle) { return json(handle.trial().standing.status); });
  property("reason", [](const TrialHandle& handle) {
    const auto& reason = handle.trial().standing.reason;
    return reason.empty() ? json() : json(reason);
  });
  property("value", [](const TrialHandle& handle) {
    const auto& trial = handle.trial();
    const Point last = !trial.standing.over() && !trial.reports.empty() ? trial.reports.back() : trial.standing.last;
    return std::isfinite(last.value) && (trial.standing.over() || !trial.reports.empty()) ? json(last.value) : json();
  });
  return kind;
}

const Class& trial_class() {
  static const Class kind = [] {
    Class made = make_trial_class();
    made.method("stop", 0, [](const Arguments& arguments) {
      const auto& handle = arguments.self(trial_class())->as<TrialHandle>();
      handle.script->stop(handle.number);
    });
    made.method("reports", 0, [](const Arguments& arguments) {
      json list = json::array();
      for (const auto& point : arguments.self(trial_class())->as<TrialHandle>().trial().reports)
        list.push_back({{"step", point.step}, {"value", std::isfinite(point.value) ? json(point.value) : json()}});
      return Value(list);
    });
    return made;
  }();
  return kind;
}

const Class& sweep_class();

LuaScript& script_of(const Arguments& arguments) { return *arguments.self(sweep_class())->as<SweepHandle>().script; }

void wait(const Arguments& arguments) {
  auto& script = script_of(arguments);
  if (arguments.has(1))
    script.wait_for(Wanted::end_of_trial, arguments.as<TrialHandle>(1, trial_class()).number);
  else
    script.wait_for(Wanted::any_end);
}

void try_one(const Arguments& arguments) {
  auto& script = script_of(arguments);
  script.wait_for(Wanted::end_of_trial, script.start(arguments.table(1), "try"));
}

Value trial_of_number(const Arguments& arguments) {
  auto& script = script_of(arguments);
  auto number = arguments.integer(1);
  if (number < 0 || number >= script.count())
    throw lua::ScriptMistake(fmt::format("trial: there is no trial {}; {} were started", number, script.count()));
  return Value(script.handle(number));
}

void add_methods(Class& kind) {
  kind.waiting_method("try", 1, try_one);
  kind.waiting_method("wait", 1, wait);
  kind.waiting_method("next_event", 0,
                      [](const Arguments& arguments) { script_of(arguments).wait_for(Wanted::report_or_end); });
  kind.method("start", 1, [](const Arguments& arguments) {
    auto& script = script_of(arguments);
    return Value(script.handle(script.start(arguments.table(1), "start")));
  });
  kind.method("trial", 1, trial_of_number);
  kind.method("best", 0, [](const Arguments& arguments) { return Value(script_of(arguments).best()); });
  kind.method("sample", 0, [](const Arguments& arguments) { return Value(script_of(arguments).sample()); });
}

const Class& sweep_class() {
  static const Class kind = [] {
    Class made("sweep");
    add_methods(made);
    auto property = [&](const std::string& name, json (*read)(const LuaScript&)) {
      made.property(name, [read](Object& object) { return Value(read(*object.as<SweepHandle>().script)); });
    };
    property("seed", [](const LuaScript& script) { return json(static_cast<int64_t>(script.file().seed)); });
    property("metric", [](const LuaScript& script) { return json(script.file().metric); });
    property("goal", [](const LuaScript& script) { return json(script.file().goal == Goal::max ? "max" : "min"); });
    property("running", [](const LuaScript& script) { return json(script.in_flight()); });
    return made;
  }();
  return kind;
}

}  // namespace

LuaScript::LuaScript(const SweepFile& sweep) : file_(sweep) {
  lua_ = load_lua_sweep(file_.source, file_.file, [this](std::string_view line) {
    if (!quiet_) log::info("{}: {}", fs::path(file_.file).filename().string(), line);
  });
  lua_.state->load_text(fmt::format("math.randomseed({})", static_cast<int64_t>(file_.seed)), "seed");
  coroutine_ = lua_.state->coroutine(lua_.run);
  quiet_ = false;  // the output of loading was printed when the file was read the first time
}

// ---- Method

Proposal LuaScript::propose(int64_t number) {
  if (!std::exchange(begun_, true)) {
    go_on(lua::Value(make_sweep_object(*this)));
    deliver();
  }
  check();
  if (unbegun_.empty()) return ended_ ? Proposal{} : Proposal::waiting();
  RUNNER_CHECK(unbegun_.front() == number, "trial {} is proposed as {}", unbegun_.front(), number);
  unbegun_.pop_front();
  return Proposal::of(trial(number).trial);
}

bool LuaScript::wants(int64_t number, int64_t step) const {
  if (!file_.reports) return false;
  const auto until = reported_.find(number);
  return trial(number).stopped || until == reported_.end() || step > until->second;
}

Verdict LuaScript::report(int64_t number, int64_t step, double value) {
  auto& until = reported_[number];
  until = std::max(until, step);
  if (trial(number).stopped) return Verdict::stop;
  events_.push_back({number, {"running", {step, measured(value)}, ""}});
  deliver();
  return trial(number).stopped ? Verdict::stop : Verdict::go_on;
}

void LuaScript::finished(const Trial& ended, const Ending& ending) {
  const char* status = ending.kind == Ending::Kind::completed ? "finished"
                       : ending.kind == Ending::Kind::pruned  ? "pruned"
                                                              : "failed";
  const int64_t number = ended.number;
  const Standing standing{status, {ending.step, measured(ending.value)}, ending.reason};
  reported_[number] = std::numeric_limits<int64_t>::max();
  if (trial(number).standing.over()) return note_end(number, standing);  // it had failed and was tried again
  auto earlier = std::find_if(events_.begin(), events_.end(),
                              [&](const Event& event) { return event.trial == number && event.standing.over(); });
  if (earlier != events_.end())
    earlier->standing = standing;
  else
    events_.push_back({number, standing});
  deliver();
}

void LuaScript::check() {
  if (failure_) std::rethrow_exception(failure_);
}

std::string LuaScript::why_other() const {
  return fmt::format(
      "either {} (or a file that it requires) has changed, or its `run` depends on more than the seed and the results, "
      "such as os.time, os.clock or the order of pairs()",
      file_.file);
}

// ---- delivering events

void LuaScript::deliver() {
  while (wanted_ != Wanted::nothing && !failure_) {
    auto news = answer();
    if (!news) return;
    go_on(lua::Value(*news));
  }
}

void LuaScript::go_on(const lua::Value& answer) {
  wanted_ = Wanted::nothing;
  try {
    ended_ = lua_.state->resume(coroutine_, answer).ended;
  } catch (const lua::LuaError& error) {
    failure_ = std::make_exception_ptr(lua::KeyPlaces(file_.source, file_.file).located(error, "sweep-run"));
  } catch (...) {
    failure_ = std::current_exception();
  }
}

/// The result of the wait: nothing while it must continue, null if nothing can arrive any more.
std::optional<json> LuaScript::answer() {
  if (wanted_ == Wanted::end_of_trial) {
    if (trial(wanted_trial_).standing.over()) return result(wanted_trial_);
    return answer_end([&](const Event& event) { return event.trial == wanted_trial_ && event.standing.over(); });
  }
  if (wanted_ == Wanted::report_or_end && !events_.empty()) {
    Event event = std::move(events_.front());
    events_.pop_front();
    return tell(event);
  }
  if (wanted_ == Wanted::any_end)
    if (auto end = answer_end([](const Event& event) { return event.standing.over(); })) return end;
  return in_flight_ == 0 ? std::optional<json>(json()) : std::nullopt;
}

/// The requested end, if it has arrived, with the reports before it.
std::optional<json> LuaScript::answer_end(const std::function<bool(const Event&)>& wanted) {
  auto found = std::find_if(events_.begin(), events_.end(), wanted);
  if (found == events_.end()) return std::nullopt;
  Event end = *found;
  Events left;
  for (auto event = events_.begin(); event != events_.end(); ++event) {
    if (event == found) continue;
    if (event < found && !event->standing.over())
      tell(*event);
    else
      left.push_back(std::move(*event));
  }
  events_ = std::move(left);
  return tell(end);
}

json LuaScript::tell(const Event& event) {
  empty_waits_ = 0;
  if (event.standing.over()) {
    --in_flight_;
    note_end(event.trial, event.standing);
    json end = result(event.trial);
    end["kind"] = "end";
    return end;
  }
  const Point point = event.standing.last;
  trials_[static_cast<size_t>(event.trial)].reports.push_back(point);
  return {{"kind", "report"}, {"trial", event.trial}, {"step", point.step}, {"value", number_or_null(point.value)}};
}

void LuaScript::note_end(int64_t number, const Standing& standing) {
  trials_[static_cast<size_t>(number)].standing = standing;
  if (standing.status != "finished" || !std::isfinite(standing.last.value)) return;
  const double sign = file_.goal == Goal::max ? -1 : 1;
  if (!best_ || sign * standing.last.value < sign * trial(*best_).standing.last.value) best_ = number;
}

// ---- called by the script

int64_t LuaScript::start(const json& parameters, const std::string& function) {
  if (unbegun_.size() >= unbegun_max)
    throw lua::ScriptMistake(fmt::format("{}: {} trials wait for their turn already", function, unbegun_max));
  ScriptTrial state;
  state.trial.number = count();
  state.trial.parameters = checked_parameters(parameters, function);
  unbegun_.push_back(state.trial.number);
  trials_.push_back(std::move(state));
  ++in_flight_;
  empty_waits_ = 0;
  return unbegun_.back();
}

void LuaScript::wait_for(Wanted wanted, int64_t number) {
  if (++empty_waits_ > empty_waits_max)
    throw lua::ScriptMistake(fmt::format(
        "{} waits in a row that brought nothing new: no trial was started, and none ended", empty_waits_max));
  wanted_ = wanted;
  wanted_trial_ = number;
}

void LuaScript::stop(int64_t number) {
  if (!file_.reports)
    throw lua::ScriptMistake("stop: a trial stops at one of its reports; the file needs `reports = true`");
  trials_.at(static_cast<size_t>(number)).stopped = true;
}

json LuaScript::sample() {
  if (file_.space.parameters().empty())
    throw lua::ScriptMistake(
        "sample: the file has no `space`; add one: space = {[\"optimizer.lr\"] = {log_uniform = {1e-5, 1e-2}}}");
  try {
    return random_point(file_.space, file_.seed, samples_++);
  } catch (const Error& error) {
    throw lua::ScriptMistake(std::string("sample: ") + error.what());
  }
}

json LuaScript::result(int64_t number) const {
  const auto& state = trial(number);
  json table = {{"trial", number},
                {"status", state.standing.status},
                {"parameters", state.trial.parameters},
                {"step", state.standing.last.step},
                {"value", number_or_null(state.standing.last.value)}};
  if (!state.standing.reason.empty()) table["reason"] = state.standing.reason;
  return table;
}

json LuaScript::best() const { return best_ ? result(*best_) : json(); }

std::shared_ptr<lua::Object> LuaScript::handle(int64_t number) {
  auto& state = trials_.at(static_cast<size_t>(number));
  if (!state.handle) state.handle = make_trial_object(*this, number);
  return state.handle;
}

std::shared_ptr<Object> make_sweep_object(LuaScript& script) {
  return Object::make(sweep_class(), SweepHandle{&script});
}

std::shared_ptr<Object> make_trial_object(LuaScript& script, int64_t number) {
  return Object::make(trial_class(), TrialHandle{&script, number});
}

}  // namespace runner::sweep
