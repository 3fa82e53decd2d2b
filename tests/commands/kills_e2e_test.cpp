// SIGKILL of supervisor and workers together, at random moments and at chosen ones. The record of the resumed run
// equals that of an undisturbed run: curves (also of hooks), samples, artifacts and their files have no gaps and no
// duplicates.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <random>

#include "runner/checkpoint/checkpoint.hpp"
#include "tests/support/command.hpp"

using namespace runner::testing;
using nlohmann::json;

namespace {

/// Logs at many moments, writes files (some only once), and generates text.
const char* const probe = R"(return {
  on_train_batch_start = function(ctx)
    ctx:log("probe/start", ctx.step)
    if ctx.step % 5 == 2 then ctx:artifact("started-" .. ctx.step .. ".txt"):write(ctx.step, "\n") end
  end,
  on_before_optimizer_step = function(ctx)
    ctx:log("probe/norm", ctx:gradient("embedding.tokens.weight"):norm(), {sync = "max"})
  end,
  on_train_batch_end = function(ctx, state)
    state.sum = (state.sum or 0) + ctx.loss
    ctx:log("probe/sum", state.sum)
    ctx:artifact("losses.txt"):write(ctx.step, " ", ctx.loss, "\n")
    if ctx.step % 8 == 0 then ctx:artifact("part-" .. ctx.step .. ".txt"):write(state.sum, "\n") end
  end,
  on_validation_end = function(ctx)
    ctx:log("probe/val", ctx.metrics.val_loss)
    ctx:generate {prompt = "line", max_new_tokens = 4, temperature = 0.8, top_k = 5, seed = ctx.step}
  end,
})";

struct Form {
  std::string strategy;
  int ranks;
};

void write_recipe(const Workplace& place, const Form& form) {
  write_tiny_recipe(place,
                    "[hooks]\nfiles = [\"probe.lua\"]\n[checkpoint]\nevery_n_steps = 2\nkeep_last = 2\n"
                    "save_top_k = 1\n");
  place.write("probe.lua", probe);
  std::string recipe = slurp(place.path() / "tiny.toml");
  auto set = [&](const std::string& from, const std::string& to) {
    recipe.replace(recipe.find(from), from.size(), to);
  };
  set("max_steps = 12", "max_steps = 24\nval_check_interval = 6");
  set("cpu_processes = 2", "cpu_processes = " + std::to_string(form.ranks));
  place.write("tiny.toml", recipe + "[strategy]\nname = \"" + form.strategy + "\"\n");
}

/// The data that two runs of the same recipe must have in common.
json record_of(const Workplace& place) {
  json shown = place.run({"show", "last", "--json"}).json(), record;
  const std::string folder = shown.at("run_dir");
  for (const auto& [name, last] : shown.at("metrics").items()) {
    json points = place.points(name);
    // Times and bytes differ from run to run, so only their steps are compared.
    const bool repeats = name == "loss" || name == "lr" || name == "grad_norm" || name == "epoch" ||
                         name == "val_loss" || name.starts_with("probe/");
    for (auto& point : points) record["metrics"][name].push_back(repeats ? point : point.at(0));
  }
  for (const auto& event : shown.at("events"))
    if (event.at("event") == "sample") record["samples"].push_back({event.at("step"), event.at("text")});
  for (const char* kind : {"artifacts", "checkpoints"})
    for (const auto& row : shown.at(kind)) record[kind].push_back({row.at("path"), row.at("step"), row.at("exists")});
  for (const auto& entry : fs::directory_iterator(fs::path(folder) / "artifacts"))
    record["files"][entry.path().filename()] = slurp(entry.path());
  for (const auto& entry : fs::directory_iterator(fs::path(folder) / "checkpoints"))
    record["folders"].push_back(entry.path().filename());
  std::sort(record["folders"].begin(), record["folders"].end());
  record["state"] = runner::Checkpoint(fs::path(folder) / "checkpoints" / "step-000024").state().at("hooks");
  return record;
}

json undisturbed(const Form& form) {
  Workplace place;
  write_recipe(place, form);
  auto result = place.run({"run", "tiny.toml"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  json record = record_of(place);
  // The compared data are not empty.
  CHECK(record.at("metrics").at("loss").size() == 24);
  CHECK(record.at("metrics").at("probe/norm").size() == 24);
  CHECK(record.at("samples").size() == 4);
  CHECK(record.at("artifacts").size() == 1 + 3 + 5);
  CHECK(record.at("checkpoints").size() == 12);
  return record;
}

/// A run that is killed repeatedly.
class Killed {
 public:
  explicit Killed(const Form& form) { write_recipe(place_, form); }

  /// Kills at the N-th time that a process reaches the fault NAME, given as "NAME:N". Returns false if the run ended
  /// before.
  bool kill_at(const std::string& fault) {
    log_ += "  at " + fault;
    return ended_by_kill(place_.start(command(), "command", {{"RUNNER_FAULT", fault}}));
  }

  bool kill_after(std::chrono::milliseconds time, std::mt19937& random) {
    log_ += "  after " + std::to_string(time.count()) + " ms";
    pid_t pid = place_.start(command());
    std::this_thread::sleep_for(time);
    auto victims = children_of(pid);
    victims.push_back(pid);
    std::shuffle(victims.begin(), victims.end(), random);
    for (pid_t victim : victims) ::kill(victim, SIGKILL);
    return ended_by_kill(pid);
  }

  void check(const json& expected) {
    INFO(log_);
    if (!finished_) {
      auto result = place_.run(command());
      INFO(result.err);
      REQUIRE(result.code == 0);
    }
    json record = record_of(place_);
    for (const auto& [what, value] : expected.items()) {
      INFO(what);
      CHECK(record.value(what, json()) == value);
    }
  }

 private:
  std::vector<std::string> command() const {
    if (place_.run({"ls", "--json"}).json().at("runs").empty()) return {"run", "tiny.toml"};
    return {"resume", "last"};
  }
  bool ended_by_kill(pid_t pid) {
    auto result = place_.finish(pid);
    INFO(log_ << "\n" << result.err);
    REQUIRE((result.code == 0 || result.code == 128 + SIGKILL));
    finished_ = finished_ || result.code == 0;
    return result.code != 0;
  }

  Workplace place_;
  std::string log_;
  bool finished_ = false;
};

/// Moments between a snapshot, its publication and its event, and during a commit of the ledger, a validation, a
/// retention and a resume.
const std::vector<const char*> faults{"snapshot", "rank written", "settle",        "publish",      "published",
                                      "commit",   "committed",    "retention",     "validation",   "artifact",
                                      "step",     "resumed",      "begin attempt", "attempt begun"};

/// Kills `kills` times, at the faults in turn and every fourth time at random, at most six times per run.
void kill_and_compare(const Form& form, int kills, unsigned seed) {
  auto begun = std::chrono::steady_clock::now();
  const json expected = undisturbed(form);
  const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
  std::mt19937 random(seed);
  size_t next = seed;
  for (int done = 0; done < kills;) {
    Killed run(form);
    for (int times = 0; times < 6 && done < kills; ++times) {
      bool killed = false;
      if (next++ % 4 == 3) {
        killed = run.kill_after(std::chrono::milliseconds(random() % static_cast<unsigned>(whole.count() + 1)), random);
      } else {
        killed = run.kill_at(std::string(faults[next % faults.size()]) + ":" + std::to_string(1 + random() % 5));
      }
      if (!killed) break;
      ++done;
    }
    run.check(expected);
  }
}

}  // namespace

TEST_CASE("expectation 4: after kills the record equals that of an undisturbed run", "[e2e]") {
  const Form form{"fsdp", 2};
  const json expected = undisturbed(form);
  for (const std::vector<const char*>& faults_of_run :
       {std::vector<const char*>{"published:1", "publish:2", "commit:6", "settle:1", "resumed:1"},
        std::vector<const char*>{"snapshot:2", "artifact:2", "attempt begun:1", "retention:1", "validation:1"},
        std::vector<const char*>{"retention:10"}}) {  // of the last checkpoint: the resumed run has no step left
    Killed run(form);
    for (const char* fault : faults_of_run) CHECK(run.kill_at(fault));
    run.check(expected);
  }
}

TEST_CASE("after 200 kills the record equals that of an undisturbed run", "[.nightly][kills]") {
  const char* asked = std::getenv("RUNNER_KILLS");
  const int kills = asked ? std::atoi(asked) : 200;
  kill_and_compare({"single", 1}, kills / 2, 1);
  kill_and_compare({"fsdp", 2}, kills - kills / 2, 2);
}
