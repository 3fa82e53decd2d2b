// Sweeps in Lua from the command line: the shipped ones, SIGKILL, and scripts that fail and are repaired.
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>

#include "runner/ledger/sweeps.hpp"
#include "tests/commands/sweep_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

/// Writes a sweep over tiny.toml with the body of `run` and, before it, more fields.
void write_lua(const Workplace& place, const std::string& run, const std::string& more = "",
               const std::string& name = "sweep.lua") {
  write_tiny_recipe(place);
  place.write(name, "local function run(sweep)\n" + run +
                        "\nend\nreturn {recipe = \"tiny.toml\", metric = \"loss\",\n"
                        "  set = {devices = 1, [\"train.max_steps\"] = 3}, " +
                        more + " run = run}\n");
}

std::string shipped(const std::string& name) { return std::string(RUNNER_SOURCE_DIR) + "/recipes/sweeps/" + name; }

double lr_of(const json& trial) { return trial.at("parameters").at("optimizer.lr"); }

/// A search that depends on its results and on random numbers.
const std::string wandering = R"(
  local at = 1e-2
  for i = 1, 24 do
    local lr = at * 10 ^ (math.random() - 0.5)
    local result = sweep:try{["optimizer.lr"] = lr}
    if result.value <= sweep:best().value then at = lr end
  end)";

}  // namespace

TEST_CASE("the shipped sweeps in Lua run to their ends", "[e2e][sweep]") {
  for (const char* name : {"golden_section.lua", "coordinates.lua", "median_stop.lua"}) {
    INFO(name);
    Workplace place;
    place.replace_worker(made_up_worker);  // its losses are lowest at lr = 1e-3
    auto plan = place.run({"sweep", "plan", shipped(name)});
    INFO(plan.err << plan.out);
    REQUIRE(plan.code == 0);
    CHECK_THAT(plan.out, ContainsSubstring("the next trials depend on their results\n"));
    auto result = place.finish(
        place.start({"sweep", "run", shipped(name), "--json", "--parallel", "2"}, "command", {{"VALIDATE", "1"}}));
    INFO(result.err);
    REQUIRE(result.code == 0);
    auto sweep = result.json().at("sweep");
    CHECK(sweep.at("status") == "finished");
    CHECK(sweep.at("method") == "lua");
    double off = std::log10(lr_of(sweep.at("best"))) + 3;
    if (std::string(name) == "golden_section.lua") {
      CHECK(sweep.at("counts").at("finished") == 7);
      CHECK(std::abs(off) < 0.3);
      CHECK_THAT(result.err, ContainsSubstring("golden_section.lua: between 0.00"));
    } else if (std::string(name) == "coordinates.lua") {
      CHECK(std::abs(off) < 1e-9);
      CHECK(place.run({"sweep", "importance"}).code == 0);
    } else {
      auto counts = sweep.at("counts");
      CHECK(counts.at("finished").get<int>() + counts.at("pruned").get<int>() == 24);
      CHECK(counts.at("pruned").get<int>() >= 3);
    }
    auto best = place.run({"sweep", "best", "--toml"});
    place.write("best.toml", best.out);
    CHECK(place.run({"check", "best.toml"}).code == 0);
  }
}

TEST_CASE("golden-section search finds a learning rate of a real training", "[e2e][sweep]") {
  Workplace place;
  auto result = succeed(place, {"sweep", "run", shipped("golden_section.lua"), "--json", "--parallel", "1"});
  auto sweep = result.json().at("sweep");
  CHECK(sweep.at("counts").at("finished") == 7);
  for (const auto& trial : status_of(place).at("trials")) CHECK(sweep.at("best").at("value") <= trial.at("value"));
}

TEST_CASE("a sweep in Lua killed at random moments ends like an undisturbed one", "[e2e][sweep]") {
  auto prepare = [](Workplace& place) {
    place.replace_worker(made_up_worker);
    write_lua(place, wandering, "seed = 3, parallel = 1,");
  };
  Workplace undisturbed, place;
  prepare(undisturbed);
  succeed(undisturbed, {"sweep", "run", "sweep.lua"});
  prepare(place);
  std::mt19937 random(Catch::getSeed());
  std::uniform_int_distribution<int> moment(50, 500);
  for (int kill = 0; kill < 6; ++kill) {
    pid_t pid = kill == 0 ? place.start({"sweep", "run", "sweep.lua"}) : place.start({"sweep", "resume"});
    if (kill == 0) REQUIRE(wait_until([&] { return first_trial_began(place); }, 30));
    std::this_thread::sleep_for(std::chrono::milliseconds(moment(random)));
    ::kill(pid, SIGKILL);
    place.finish(pid);
    CHECK(wait_until([&] { return processes_of(place.path()) == 0; }, 5));
  }
  succeed(place, {"sweep", "resume"});
  CHECK(final_table(place).size() == 24);
  CHECK(final_table(place) == final_table(undisturbed));
}

TEST_CASE("a killed sweep in Lua with parallel trials proposes each once, in any order of their ends", "[e2e][sweep]") {
  Workplace place;
  place.replace_worker(made_up_worker);
  write_lua(place, R"(
  local started = 0
  local function start(lr)
    started = started + 1
    if started <= 20 then sweep:start{["optimizer.lr"] = lr} end
  end
  for _ = 1, 3 do start(10 ^ -(1 + 4 * math.random())) end
  for result in function() return sweep:wait() end do
    start(math.max(1e-6, result.parameters["optimizer.lr"] * (0.5 + math.random())))
  end)",
            "parallel = 2,");
  for (int kill = 0; kill < 4; ++kill) {
    pid_t pid = kill == 0 ? place.start({"sweep", "run", "sweep.lua"}) : place.start({"sweep", "resume"});
    if (kill == 0) REQUIRE(wait_until([&] { return first_trial_began(place); }, 30));
    std::this_thread::sleep_for(std::chrono::milliseconds(350));
    ::kill(pid, SIGKILL);
    place.finish(pid);
    CHECK(wait_until([&] { return processes_of(place.path()) == 0; }, 5));
  }
  succeed(place, {"sweep", "resume"});
  auto status = status_of(place);
  CHECK(status.at("sweep").at("counts").at("finished") == 20);
  CHECK(status.at("trials").size() == 20);
  runner::Sweeps store(place.home().string(), runner::Ledger::Mode::read);
  std::map<int64_t, int> ended;
  for (const auto& [trial, entry] : store.history(store.find("last").id)) ended[trial] += entry.at("kind") == "ended";
  for (const auto& [trial, times] : ended) CHECK(times == 1);
}

TEST_CASE("a sweep whose script fails can be continued with a repaired script", "[e2e][sweep]") {
  const std::string good =
      "  local first = sweep:try{[\"optimizer.lr\"] = 1e-2}\n"
      "  local second = sweep:try{[\"optimizer.lr\"] = first.value / 1000}\n";
  for (const char* broken :
       {"  error(\"broken at \" .. second.trial)", "  while true do end", "  local function f() return 1 + f() end f()",
        "  sweep:try{[\"optimizer.lrr\"] = 1}", "  local t = {} while true do t[#t + 1] = {} end"}) {
    INFO(broken);
    Workplace place;
    place.replace_worker(made_up_worker);
    write_lua(place, good + broken);
    for (const char* verb : {"run", "resume"}) {
      auto result =
          std::string(verb) == "run" ? place.run({"sweep", "run", "sweep.lua"}) : place.run({"sweep", "resume"});
      INFO(result.err);
      CHECK(result.code == 2);
      CHECK_THAT(result.err, ContainsSubstring("sweep.lua:4:1: error: "));
      CHECK_THAT(result.err, ContainsSubstring(" --file "));
      auto status = status_of(place);
      CHECK(status.at("sweep").at("status") == "failed");
      CHECK_THAT(status.at("sweep").at("message").get<std::string>(), ContainsSubstring("sweep.lua:4:1: error: "));
      CHECK(status.at("sweep").at("counts").at("finished") == 2);
      CHECK(status.at("trials").size() == 2);
    }
    auto before = final_table(place);
    write_lua(place, "  local first = sweep:try{[\"optimizer.lr\"] = 1e-2}\n  sweep:try{[\"optimizer.lr\"] = 5e-3}");
    auto result = place.run({"sweep", "resume", "--file", "sweep.lua"});
    CHECK(result.code == 4);
    CHECK_THAT(result.err, ContainsSubstring("this sweep cannot be continued: trial 1 was {\"optimizer.lr\":0.00"));
    CHECK_THAT(result.err, ContainsSubstring("and would now be {\"optimizer.lr\":0.005}"));
    CHECK(final_table(place) == before);
    result = place.run({"sweep", "resume"});  // not taken
    CHECK_THAT(result.err, ContainsSubstring("has changed since sweep "));
    CHECK(result.code == 2);
    write_lua(place, good + "  sweep:try{[\"optimizer.lr\"] = second.value / 2000}");
    result = succeed(place, {"sweep", "resume", "--file", "sweep.lua", "--json"});
    CHECK(result.json().at("sweep").at("counts").at("finished") == 3);
    auto after = final_table(place);
    CHECK(json(after.begin(), after.begin() + 2) == before);
  }
}

TEST_CASE("a repaired script must keep `set` and recipe, and the time of a broken sweep is counted once",
          "[e2e][sweep]") {
  Workplace place;
  place.replace_worker(made_up_worker);
  write_lua(place, "  sweep:try{}\n  error(\"broken\")");
  const auto begun = std::chrono::steady_clock::now();
  auto result = place.finish(place.start({"sweep", "run", "sweep.lua"}, "command", {{"PAUSE", "2"}}));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  CHECK(result.code == 2);
  CHECK(status_of(place).at("sweep").at("seconds").get<double>() < took.count());
  write_lua(place, "  sweep:try{}", "", "good.lua");
  const auto good = slurp(place.path() / "good.lua");
  place.write("other.toml", slurp(place.path() / "tiny.toml"));
  for (auto [key, was, now] : {std::tuple{"set", "= 3}", "= 4}"}, std::tuple{"recipe", "tiny.toml", "other.toml"}}) {
    auto text = good;
    place.write("changed.lua", text.replace(text.find(was), std::string(was).size(), now));
    result = place.run({"sweep", "resume", "--file", "changed.lua"});
    CHECK(result.code == 2);
    CHECK_THAT(result.err, ContainsSubstring(std::string("changed.lua: `") + key +
                                             "` is not the value that the sweep began with; start a new sweep"));
  }
  succeed(place, {"sweep", "resume", "--file", "good.lua"});
}

TEST_CASE("a trial whose recipe is refused has failed, and the search continues", "[e2e][sweep]") {
  Workplace place;
  place.replace_worker(made_up_worker);
  write_lua(place,
            "  sweep:try{}\n  local refused = sweep:try{[\"model.n_heads\"] = 3}\n"
            "  assert(refused.status == \"failed\" and refused.reason == \"user_error\" and not refused.value)\n"
            "  sweep:try{[\"optimizer.lr\"] = 1e-3}");
  auto result = succeed(place, {"sweep", "run", "sweep.lua", "--json"});
  CHECK(result.json().at("sweep").at("counts").at("finished") == 2);
  auto refused = status_of(place).at("trials").at(1);
  CHECK(refused.at("reason") == "user_error");
  CHECK_THAT(refused.at("message").get<std::string>(), ContainsSubstring("n_heads"));
}

TEST_CASE("when a script fails, running trials are stopped and can be resumed", "[e2e][sweep]") {
  Workplace place;
  place.replace_worker(
      "while [ $# -gt 0 ]; do [ \"$1\" = --run-dir ] && dir=$2; shift; done\n"
      "seed=$(sed -n 's/^seed = //p' $dir/resolved.toml)\n"
      "[ $seed = 2 ] && exec sleep 60\nexit 1\n");
  write_lua(place,
            "  local slow, fast = sweep:start{[\"run.seed\"] = 2}, sweep:start{[\"run.seed\"] = 1}\n"
            "  if sweep:wait().status == \"failed\" then error(\"seen\") end",
            "parallel = 2,");
  auto result = place.run({"sweep", "run", "sweep.lua"});
  INFO(result.err);
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("the sweep cannot continue; stopping 1 trial with a checkpoint"));
  auto trials = status_of(place).at("trials");
  CHECK(trials.at(0).at("status") == "waiting");
  CHECK(trials.at(1).at("status") == "failed");
}

TEST_CASE("plan runs a sweep in Lua until it needs a result", "[e2e][sweep]") {
  Workplace place;
  write_lua(place,
            "  print(\"hello\")\n  for i = 1, 3 do sweep:start{[\"optimizer.lr\"] = i / 1024} end\n  sweep:wait()",
            "parallel = 1, budget = {trials = 9},");
  auto result = succeed(place, {"sweep", "plan", "sweep.lua"});
  CHECK_THAT(result.err, ContainsSubstring("sweep.lua: hello"));
  CHECK(result.out == R"(at most 9 trials as `run` proposes them, 1 at a time; the smallest of loss is best
TRIAL  optimizer.lr
    0  0.0009765625
    1   0.001953125
    2  0.0029296875
the next trials depend on their results
)");
  CHECK(place.run({"sweep", "plan", "sweep.lua", "-n", "2", "--json"}).json().at("first").size() == 2);
  CHECK(place.untouched());
}
