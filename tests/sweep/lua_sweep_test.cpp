// Sweeps in Lua: the meaning of files, the data that `run` gets, replay, and wrong files.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/files.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/sweep/lua_sweep.hpp"
#include "runner/sweep/search.hpp"
#include "runner/sweep/sweep_file.hpp"
#include "tests/sweep/sweep_place.hpp"

using namespace runner;
using namespace runner::sweep;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using Kind = Proposal::Kind;

namespace {

struct LuaPlace : SweepPlace {
  SweepFile read(const std::string& text) const { return parse_sweep(text, (path / "s.lua").string()); }
  SweepFile with_run(const std::string& body, const std::string& more = "") const {
    return read("return {recipe = 'base.toml', metric = 'loss', " + more + " run = function(sweep)\n" + body +
                "\nend}");
  }
  std::string said(const std::function<void()>& action) const { return message_of<std::exception>(action); }
  std::string said(const std::string& text) const {
    return said([&] { check_recipes(read(text)); });
  }
  /// The error of a search whose trials are proposed one after the other and end with the value 1.
  std::string run_says(const std::string& body, const std::string& more = "") const {
    return said([&] {
      auto search = with_run(body, more).make_search();
      for (int i = 0; i < 100; ++i) {
        auto proposal = search.propose();
        if (proposal.kind != Kind::trial) break;
        search.end(proposal.trial.number, "finished", 1, 1, "");
        search.check();
      }
    });
  }
};

double lr_of(const Proposal& proposal) { return proposal.trial.parameters.at("optimizer.lr"); }

}  // namespace

TEST_CASE("a sweep in Lua has the settings of [sweep], and its mistakes are reported with their lines") {
  LuaPlace place;
  auto sweep = place.read(R"(
local trials = 4 * 10
return {
  name = "wide", recipe = "base.toml", metric = "loss", goal = "max", value = "best", seed = 7, parallel = 3,
  set = {train = {max_steps = 5}, strategy = "single"},
  budget = {trials = trials, time = "2h"}, stop = {target = 1.5}, reports = true,
  space = {["optimizer.lr"] = {log_uniform = {1e-5, 1e-2}}, model = {n_heads = {1, 2}}},
  constraints = {"model.dim % model.n_heads == 0"},
  run = function(sweep) sweep:try(sweep:sample()) end,
})");
  CHECK(sweep.name == "wide");
  CHECK(sweep.in_lua());
  CHECK(sweep.recipe == (place.path / "base.toml").string());
  CHECK(sweep.overrides == std::vector<std::string>{"strategy.name=\"single\"", "train.max_steps=5"});
  CHECK(sweep.goal == Goal::max);
  CHECK(sweep.best_value);
  CHECK(sweep.seed == 7);
  CHECK(sweep.parallel == 3);
  CHECK(sweep.limits.trials == 40);
  CHECK(sweep.limits.target == 1.5);
  CHECK(sweep.time_s == 7200);
  CHECK(sweep.uses_reports());
  CHECK(sweep.space.parameters().size() == 2);
  CHECK(sweep.make_search().count() == 40);
  check_recipes(sweep);

  CHECK(place.said(R"(return {
  recipe = "base.toml",
  metrik = "loss",
  goal = "least",
  budget = {trials = 0},
  space = {
    ["optimizer.lrr"] = {log_uniform = {1e-5, 1e-2}},
    ["model.dropout"] = {uniform = {0, 2}},
  },
  run = function() end,
}
)") == R"(s.lua:3:3: error: unknown key `metrik` in the table of a sweep
    3 |   metrik = "loss",
      |   ^~~~~~
  did you mean `metric`?

s.lua:4:3: error: `goal` cannot be "least"
    4 |   goal = "least",
      |   ^~~~
  allowed: min, max

s.lua:5:13: error: `trials` must be at least 1, not 0
    5 |   budget = {trials = 0},
      |             ^~~~~~

s.lua:7:6: error: the recipe has no key `optimizer.lrr`
    7 |     ["optimizer.lrr"] = {log_uniform = {1e-5, 1e-2}},
      |      ^~~~~~~~~~~~~~~
  did you mean `optimizer.lr`?

s.lua:8:6: error: `dropout` must be at most 0.999, not 2.0
    8 |     ["model.dropout"] = {uniform = {0, 2}},
      |      ^~~~~~~~~~~~~~~)");
  auto begins = [&](const std::string& text, const std::string& what) {
    INFO(place.said(text));
    CHECK(place.said(text).starts_with(what));
  };
  begins("return 3", "s.lua:1:1: error: a sweep in Lua returns a table with `recipe` and `run`, not a number");
  begins("return {recipe = 'base.toml'}", "s.lua:1:1: error: a sweep in Lua needs `run = function(sweep) ... end`");
  begins("return {recipe = 'base.toml', run = 3}", "s.lua:1:31: error: `run` must be a function, not a number");
  begins("return {recipe = 'base.toml', method = 'tpe', run = function() end}",
         "s.lua:1:31: error: a sweep in Lua has no `method`: its `run` decides what is tried");
  begins("return {recipe = 'no.toml', run = function() end}", "s.lua:1:9: error: the recipe no.toml does not exist");
  begins("local x = nil\nlocal y = x.z\nreturn {}", "s.lua:2:1: error: attempt to index a nil value (local 'x')");
  begins("return {recipe = 'base.toml', metric = 'loss', constraints = {'1 < 2'}, run = function() end}",
         "s.lua:1:48: error: `constraints` are for a `space`, and there is none");
  begins(
      "return {recipe = 'base.toml', metric = 'loss',\n  run = function(sweep)\n    sweep:try{model = {n_heads = 3}}\n "
      " "
      "end}",
      "s.lua:2:3: error: trial 0 of `run`: trials with model.n_heads=3 would fail: ");
}

TEST_CASE("run proposes trials, waits, and gets their results") {
  LuaPlace place;
  auto search = place
                    .with_run(R"(
  local first = sweep:try{["optimizer.lr"] = 0.5, model = {n_heads = 2.0}}
  assert(first.value == 3 and first.status == "finished" and first.trial == 0 and first.step == 9)
  assert(first.parameters["model.n_heads"] == 2)
  local a, b, c = sweep:start{["optimizer.lr"] = 1}, sweep:start{["optimizer.lr"] = 2}, sweep:start{["optimizer.lr"] = 3}
  assert(sweep.running == 3 and a.number == 1 and b.status == "running" and b.value == nil)
  assert(sweep:wait().trial == 2, "the first that ends")
  local failed = sweep:wait(a)
  assert(failed.status == "failed" and failed.value == nil and failed.reason == "nan" and a.reason == "nan")
  assert(c.status == "running", "its end is not told yet")
  assert(sweep:wait(c).value == 1 and c.value == 1 and c.parameters["optimizer.lr"] == 3)
  assert(sweep:wait() == nil and sweep:wait(c).value == 1)
  assert(sweep:best().trial == 3 and sweep:trial(3) == c)
  assert(sweep.goal == "min" and sweep.metric == "loss" and sweep.seed == 0)
  sweep:try{["optimizer.lr"] = 4})")
                    .make_search();
  auto first = search.propose();
  CHECK(first.trial.parameters == json{{"optimizer.lr", 0.5}, {"model.n_heads", 2}});
  CHECK(search.propose().kind == Kind::wait);
  search.end(0, "finished", 3, 9, "");
  for (double lr : {1., 2., 3.}) CHECK(lr_of(search.propose()) == lr);
  CHECK(search.propose().kind == Kind::wait);
  search.end(2, "finished", 2, 9, "");
  search.end(3, "finished", 1, 9, "");
  CHECK(search.propose().kind == Kind::wait);
  search.end(1, "failed", NAN, 0, "nan");
  search.check();
  CHECK(lr_of(search.propose()) == 4);
  CHECK(search.propose().kind == Kind::wait);
  search.end(4, "finished", 1, 1, "");
  CHECK(search.propose().kind == Kind::done);
}

TEST_CASE("run gets reports and stops trials because of them") {
  LuaPlace place;
  auto search = place
                    .with_run(R"(
  local a, b = sweep:start{["optimizer.lr"] = 1}, sweep:start{["optimizer.lr"] = 2}
  local event = sweep:next_event()
  assert(event.kind == "report" and event.trial == 0 and event.step == 5 and event.value == -3)
  assert(a.value == -3 and #a:reports() == 1)
  b:stop()
  event = sweep:next_event()
  assert(event.kind == "end" and event.trial == 1 and event.status == "pruned" and event.value == -4)
  sweep:trial(0):stop()
  assert(sweep:wait().trial == 0 and a:reports()[1].value == -3)
  assert(sweep:next_event() == nil and sweep:best() == nil))",
                              "reports = true, goal = 'max',")
                    .make_search();
  search.propose();
  search.propose();
  CHECK_FALSE(search.report(0, 5, -3)->stop);
  CHECK(search.report(1, 5, -4)->stop);
  CHECK_FALSE(search.report(1, 6, -4));  // the stop was already reported
  search.end(1, "pruned", -4, 5, "");
  CHECK(search.report(0, 6, -2)->stop);
  search.end(0, "pruned", -2, 6, "");
  search.check();
  CHECK(search.propose().kind == Kind::done);
}

TEST_CASE("reports that a trial repeats after an interruption or failure are not given to run again") {
  LuaPlace place;
  auto make = [&] {
    return place
        .with_run(R"(
  local a, b = sweep:start{["optimizer.lr"] = 1}, sweep:start{["optimizer.lr"] = 2}
  local told = {}
  for event in function() return sweep:next_event() end do
    told[#told + 1] = event.trial .. ":" .. event.kind .. event.step
  end
  assert(#a:reports() == 4 and a.value == 1)
  sweep:try{["run.notes"] = table.concat(told, " ")})",
                  "reports = true,")
        .make_search();
  };
  auto search = make();
  std::vector<HistoryEntry> history;
  for (int i = 0; i < 2; ++i) history.push_back(proposed(search.propose().trial));
  auto report = [&](int64_t trial, int64_t step) {
    auto entry = search.report(trial, step, 1);
    if (entry) history.push_back(*entry);
    return entry.has_value();
  };
  for (int64_t step : {8, 16, 24}) CHECK(report(0, step));
  CHECK(report(1, 8));
  // Killed. Trial 0 continues from its checkpoint at step 10.
  search = make();
  for (const auto& entry : history) search.replay(entry);
  for (int64_t step : {16, 24}) CHECK_FALSE(report(0, step));
  CHECK(report(0, 32));
  history.push_back(search.end(1, "failed", NAN, 0, "other"));
  // Trial 1 is retried from its beginning.
  for (int64_t step : {8, 16}) CHECK_FALSE(report(1, step));
  history.push_back(search.end(1, "finished", 3, 16, ""));
  history.push_back(search.end(0, "finished", 1, 32, ""));
  search.check();
  const json told = {{"run.notes", "0:report8 0:report16 0:report24 1:report8 0:report32 1:end0 0:end32"}};
  CHECK(search.propose().trial.parameters == told);
  auto again = make();
  for (const auto& entry : history) again.replay(entry);
  CHECK(again.propose().trial.parameters == told);
}

TEST_CASE("a sweep in Lua that is rebuilt from its history after every entry continues unchanged") {
  LuaPlace place;
  auto file = place.with_run(R"(
  for _ = 1, 4 do sweep:start{["optimizer.lr"] = math.random()} end
  for result in function() return sweep:wait() end do
    local lr = (result.value or 1) * math.random() + sweep:sample()["optimizer.lr"]
    if result.trial < 30 then sweep:start{["optimizer.lr"] = lr, ["run.seed"] = result.trial} end
  end)",
                             "seed = 5, space = {['optimizer.lr'] = {uniform = {0, 1}}},");
  auto simulate = [&](bool disturbed) {
    std::vector<json> history;
    auto search = file.make_search();
    auto keep = [&](const HistoryEntry& entry) {
      history.push_back(to_json(entry));
      history.back()["trial"] = entry.trial;
      if (!disturbed) return;
      auto again = file.make_search();
      for (const auto& text : history) {
        auto repeated = history_entry_from_json(json::parse(text.dump()));
        repeated.trial = repeated.proposal.number = text.at("trial");
        again.replay(repeated);
      }
      search = std::move(again);
    };
    std::vector<Trial> running;
    do {
      for (Proposal proposal; running.size() < 3 && (proposal = search.propose()).kind == Kind::trial;) {
        running.push_back(proposal.trial);
        keep(proposed(proposal.trial));
      }
      auto ends = running.begin() + static_cast<long>(history.size() * 7 % running.size());
      const bool failed = ends->number % 9 == 4;
      keep(search.end(ends->number, failed ? "failed" : "finished",
                      failed ? NAN : ends->parameters["optimizer.lr"].get<double>(), 1, failed ? "other" : ""));
      running.erase(ends);
    } while (!running.empty());
    search.check();
    return history;
  };
  auto undisturbed = simulate(false);
  CHECK(undisturbed.size() == 68);
  CHECK(simulate(true) == undisturbed);
}

TEST_CASE("a history that the file cannot produce is refused at the first different trial") {
  LuaPlace place;
  auto body = [](const std::string& second) {
    return "sweep:try{['optimizer.lr'] = 1}\nsweep:try{['optimizer.lr'] = " + second + "}";
  };
  auto before = place.with_run(body("2")).make_search();
  std::vector<HistoryEntry> history;
  for (double value : {7., 8.}) {
    auto trial = before.propose().trial;
    history.push_back(proposed(trial));
    history.push_back(before.end(trial.number, "finished", value, 1, ""));
  }
  auto replay = [&](const std::string& text) {
    return place.said([&] {
      auto search = place.with_run(text).make_search();
      for (const auto& entry : history) search.replay(entry);
    });
  };
  const std::string why =
      "; either s.lua (or a file that it requires) has changed, or its `run` depends on more than the seed and the "
      "results, such as os.time, os.clock or the order of pairs()";
  CHECK(replay(body("2")) == "");
  CHECK(replay(body("1 + sweep:best().value / 7")) == "");
  CHECK(replay(body("3")) ==
        "this sweep cannot be continued: trial 1 was {\"optimizer.lr\":2}, and would now be {\"optimizer.lr\":3}" +
            why);
  CHECK(replay("sweep:try{['optimizer.lr'] = 1}") ==
        "this sweep cannot be continued: trial 1 was {\"optimizer.lr\":2}, and would now not be proposed" + why);
  CHECK_THAT(replay("error('broken')"), ContainsSubstring("s.lua:2:1: error: broken"));
}

TEST_CASE("errors in run are reported with their line, and no result in the history is lost") {
  LuaPlace place;
  auto says = [&](const std::string& body, const std::string& what, const std::string& more = "") {
    auto said = place.run_says(body, more);
    INFO(said);
    CHECK(said.starts_with("s.lua:2:1: error: " + what));
  };
  says("sweep:try{['devices.mesh.tensor'] = 1}",
       "try: the recipe has no key `devices.mesh.tensor`; did you mean `devices.mesh`?");
  says("sweep:try{['optimizer.lrr'] = 1}", "try: the recipe has no key `optimizer.lrr`; did you mean `optimizer.lr`?");
  says("sweep:try{['optimizer.lr'] = 'x'}", "try: `lr` must be a number, not \"x\"");
  says("sweep:try{['optimizer.lr'] = 0/0}", "try: `optimizer.lr` is not a finite number");
  says("sweep:try{['model.n_heads'] = 1.5}", "try: `n_heads` must be an integer");
  says("sweep:start{['optimizer.name'] = 'adamx'}", "start: ");
  says("sweep:start{['optimizer.lr'] = 1, optimizer = {lr = 2}}", "start: `optimizer.lr` is given twice");
  says("sweep:try{1, 2}", "try: needs a table from recipe keys to values, not a list");
  says("sweep:try()", "try: argument 1 must be a table, not nothing");
  says("sweep.try{}", "try: call it with a colon");
  says("sweep:tyr{}", "a sweep has no `tyr`; did you mean `try`?");
  says("sweep:sample()", "sample: the file has no `space`");
  says("sweep:start{}:stop()", "stop: a trial stops at one of its reports; the file needs `reports = true`");
  says("sweep:wait(3)", "wait: argument 1 must be a trial, not a number");
  says("sweep:trial(0)", "trial: there is no trial 0; 0 were started");
  says("coroutine.yield()", "coroutine.yield() works only inside of coroutines");
  says("coroutine.wrap(function() sweep:try{} end)()", "s.lua:2: try: cannot wait inside of a coroutine");
  says("sweep:try(sweep:sample())", "sample: 10000 draws in a row were rejected by the constraints",
       "space = {['run.seed'] = {1, 2}}, constraints = {'run.seed > 2'},");

  // An error after trials: the end of the last trial is recorded, and each later call gets the error.
  auto search = place.with_run("sweep:try{}\nerror('after ' .. sweep:best().value)").make_search();
  search.propose();
  CHECK(search.end(0, "finished", 4, 1, "").value == 4);
  for (int i = 0; i < 2; ++i) {
    CHECK(place.said([&] { search.check(); }) ==
          "s.lua:3:1: error: after 4.0\n    3 | error('after ' .. sweep:best().value)\n      | ^");
    CHECK_THROWS_AS(search.propose(), RecipeError);
  }
}

TEST_CASE("files that misuse Lua end with an error, and no result is lost") {
  LuaPlace place;
  for (const char* body :
       {"while true do end", "while true do sweep:wait() end", "while true do pcall(sweep.wait, sweep) end",
        "while true do sweep:start{} end", "local t = {} while true do t[#t + 1] = {sweep:best()} end",
        "local function f() return 1 + f() end return f()",
        "local x = sweep:start{} for i = 1, 1e9 do sweep:wait(x) end", "local s = 'x' while true do s = s .. s end",
        "setmetatable(_G, {__index = function() while true do end end}) return y",
        "return sweep:try(setmetatable({}, {__pairs = function() while true do end end}))(1)",
        "local t = {} t.t = t sweep:try(t)", "coroutine.close(coroutine.running())",
        "local co = coroutine.create(function() while true do coroutine.yield(1) end end) "
        "while true do coroutine.resume(co) end"}) {
    INFO(body);
    auto search = place.with_run("sweep:try{['run.seed'] = 4}\n" + std::string(body)).make_search();
    auto trial = search.propose().trial;
    CHECK(trial.parameters == json{{"run.seed", 4}});
    CHECK(search.end(0, "finished", 2, 1, "").value == 2);  // recorded before the error is reported
    std::string said;
    for (int i = 0; i < 20'000 && said.empty(); ++i)
      said = place.said([&] {
        search.check();
        auto next = search.propose();
        if (next.kind == Kind::trial) search.end(next.trial.number, "finished", 2, 1, "");
      });
    CHECK(said.starts_with("s.lua:3:"));
    CHECK(search.best()->trial.number == 0);
  }
}
