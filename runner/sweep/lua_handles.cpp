// The objects of a sweep in Lua: `sweep`, and handles of trials.
#include <cmath>

#include "runner/sweep/lua_script.hpp"

namespace runner::sweep {

namespace {

using lua::Arguments;
using lua::Class;
using lua::Object;
using lua::Value;
using nlohmann::json;
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

std::shared_ptr<Object> make_sweep_object(LuaScript& script) {
  return Object::make(sweep_class(), SweepHandle{&script});
}

std::shared_ptr<Object> make_trial_object(LuaScript& script, int64_t number) {
  return Object::make(trial_class(), TrialHandle{&script, number});
}

}  // namespace runner::sweep
