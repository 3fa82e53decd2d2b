// Cluster environments of users, end to end: two processes find each other through a library or a Lua file and train as two nodes with
// --node-rank do, and `runner check` reports mistakes without the variables of a job.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "tests/commands/resume_support.hpp"
#include "tests/support/nodes.hpp"
#include "tests/support/parts_library.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// The library of the example, built once for all tests of this program.
const fs::path& rack_example() {
  static const TemporaryFolder folder;
  static const fs::path library = build_parts(folder.path, "librack.so", parts_source("rack.cpp"));
  return library;
}

/// Writes a recipe, and copies the plug-in `file` into its folder.
void write_rack_recipe(const Workplace& place, const std::string& file, const std::string& more = "") {
  write_tiny_recipe(place, "[plugins]\ncluster_environment = \"" + file + "\"\n" + more);
  if (file == "rack.lua")
    place.write(file, parts_source("rack.lua"));
  else
    fs::copy_file(rack_example(), place.path() / file);
}

/// Starts the same command as each of two nodes of a job, and waits for both.
std::vector<CommandResult> run_rack(const Workplace& place, std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  std::map<std::string, std::string> job = {
      {"RACK_NODES", "2"}, {"RACK_HEAD", "127.0.0.1"}, {"RACK_JOB", std::to_string(free_port())}};
  std::vector<pid_t> pids;
  for (const std::string node : {"0", "1"}) {
    job["RACK_NODE"] = node;
    pids.push_back(place.start(arguments, "node-" + node, job));
  }
  return {place.finish(pids[0], "node-0"), place.finish(pids[1], "node-1")};
}

std::vector<CommandResult> trained_rack(const Workplace& place, const std::vector<std::string>& arguments) {
  auto results = run_rack(place, arguments);
  INFO(results[0].err << results[1].err);
  REQUIRE(results[0].code == 0);
  REQUIRE(results[1].code == 0);
  return results;
}

nlohmann::json shown_run(const Workplace& place) { return place.run({"show", "last", "--json"}).json(); }

}  // namespace

TEST_CASE("two processes find each other through a plug-in and train as --node-rank does", "[e2e]") {
  Workplace by_hand;
  write_tiny_recipe(by_hand, "[strategy]\nname = \"fsdp\"\n[checkpoint]\nevery_n_steps = 6\n");
  for (const auto& result : Nodes(by_hand, 2, {"run", "tiny.toml"}).finish()) {
    INFO(result.err);
    REQUIRE(result.code == 0);
  }
  const auto expected = losses(by_hand);
  REQUIRE(expected.size() == 12);
  for (const std::string file : {"librack.so", "rack.lua"}) {
    INFO(file);
    Workplace place;
    write_rack_recipe(place, file, "[strategy]\nname = \"fsdp\"\n[checkpoint]\nevery_n_steps = 6\n");
    const auto results = trained_rack(place, {"run", "tiny.toml"});
    CHECK(losses(place) == expected);
    CHECK(results[1].out.empty());
    CHECK_THAT(results[1].err, ContainsSubstring(" as node 1 of 2; node 0 shows the progress\nfinished\n"));
    const auto run = shown_run(place);
    CHECK(run.at("world_size") == 4);
    CHECK(run.at("config").at("plugins").at("cluster_environment") == (place.path() / file).string());
    CHECK(final_state(results[0].json().at("run_dir")) == final_state(only_run_dir(by_hand)));
  }
}

TEST_CASE("a plug-in for a launcher that starts one process for each rank", "[e2e]") {
  Workplace together;
  write_tiny_recipe(together, "[strategy]\nname = \"fsdp\"\n");
  REQUIRE(together.run({"run", "tiny.toml"}).code == 0);
  const auto expected = losses(together);
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"fsdp\"\n[plugins]\ncluster_environment = \"task.lua\"\n");
  place.write("task.lua", R"(return {
  ranks = function(env)
    local task = tonumber(env("TASK"))
    return {
      node_rank = 0, num_nodes = 1, main_port = tonumber(env("TASK_PORT")), job_id = "tasks",
      launched = { rank = task, world_size = 2, local_rank = task, local_size = 2 },
    }
  end,
})");
  const std::string port = std::to_string(free_port());
  const pid_t first = place.start({"run", "tiny.toml", "--json"}, "task-0", {{"TASK", "0"}, {"TASK_PORT", port}}),
              second = place.start({"run", "tiny.toml", "--json"}, "task-1", {{"TASK", "1"}, {"TASK_PORT", port}});
  const auto leader = place.finish(first, "task-0"), other = place.finish(second, "task-1");
  INFO(leader.err << other.err);
  REQUIRE(leader.code == 0);
  REQUIRE(other.code == 0);
  CHECK(shown_run(place).at("world_size") == 2);
  CHECK_THAT(leader.err, ContainsSubstring("the plug-in task started one supervisor for each rank of this node"));
  const auto apart = losses(place);
  REQUIRE(apart.size() == expected.size());
  for (size_t i = 0; i < apart.size(); ++i) CHECK(std::abs(apart[i] - expected[i]) < 2e-5);
}

TEST_CASE("resume and rerun ask the plug-in again", "[e2e]") {
  Workplace place;
  write_rack_recipe(place, "rack.lua", "options = { port = " + std::to_string(free_port()) + " }\n");
  trained_rack(place, {"run", "tiny.toml"});
  const auto first = losses(place);
  const auto more = trained_rack(place, {"resume", "--set", "train.max_steps=16"});
  CHECK_THAT(more[0].err, ContainsSubstring("continuing from"));
  CHECK(shown_run(place).at("world_size") == 4);
  CHECK(losses(place).size() == 16);
  // The run records the script's text, and a note says that it has changed.
  place.write("rack.lua", "-- changed\n" + parts_source("rack.lua"));
  const auto changed = trained_rack(place, {"resume", "--set", "train.max_steps=18"});
  CHECK_THAT(changed[0].err, ContainsSubstring("rack.lua has changed since this run was last started"));
  const auto again = trained_rack(place, {"rerun", "last", "--set", "train.max_steps=12"});
  CHECK(shown_run(place).at("world_size") == 4);
  CHECK(losses(place) == first);
}

TEST_CASE("check finds mistakes of a cluster environment, and needs no variables of a job", "[e2e]") {
  Workplace place;
  write_rack_recipe(place, "librack.so");
  place.write("rack.lua", parts_source("rack.lua"));
  const auto check = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> words = {"check", "tiny.toml", "--set"};
    words.insert(words.end(), settings.begin(), settings.end());
    const auto result = place.run(words);
    return std::to_string(result.code) + ": " + result.out + result.err;
  };
  CHECK_THAT(check({"run.seed=3"}),
             ContainsSubstring("0: note: plugins.cluster_environment says at the start of a run where its ranks are; "
                               "this plan is for 1 node"));
  CHECK_THAT(check({"plugins.cluster_environment=rack.lua", "plugins.options={ port = 4000 }"}),
             ContainsSubstring("0: note: "));
  CHECK_THAT(check({"plugins.options={ prot = 1 }"}),
             ContainsSubstring("2: ") && ContainsSubstring("--set plugins.options={ prot = 1 }") &&
                 ContainsSubstring("no plug-in of this recipe has an option `prot`; did you mean `port`?"));
  // A run says so before it asks for its ranks, whose variables are not set here.
  const auto started = place.run({"run", "tiny.toml", "--set", "plugins.options={ prot = 1 }"});
  CHECK(started.code == 2);
  CHECK_THAT(started.err, ContainsSubstring("did you mean `port`?"));
  CHECK_THAT(check({"plugins.cluster_environment=librakc.so"}),
             ContainsSubstring("there is no file") && ContainsSubstring("did you mean librack.so?"));
  CHECK_THAT(check({"devices.cluster=slurm"}), ContainsSubstring("tiny.toml:") &&
                                                   ContainsSubstring("and so does cluster = \"slurm\"") &&
                                                   ContainsSubstring("remove one of the two"));
  CHECK_THAT(check({"devices.simulate=true", "devices=2"}), ContainsSubstring("simulate starts all of them here"));
  CHECK_THAT(check({"devices.min_nodes=1"}), ContainsSubstring("in an elastic run nodes leave and join"));
  place.write("bad.lua", "return { node = function() end }");
  CHECK_THAT(check({"plugins.cluster_environment=bad.lua"}),
             ContainsSubstring("bad.lua:1:1: error: `node` is not part of a cluster environment"));
  fs::remove(place.path() / "librack.so");
  build_parts(place.path(), "librack.so",
              with_replaced(parts_source("rack.cpp"), "RUNNER_PARTS(", "RUNNER_PARTS(.version = 99, "));
  CHECK_THAT(check({"run.seed=3"}), ContainsSubstring("tiny.toml:") &&
                                        ContainsSubstring("was built for version 99 of the interface of parts"));
}

TEST_CASE("a run whose plug-in fails or contradicts the recipe does not start", "[e2e]") {
  Workplace place;
  write_rack_recipe(place, "rack.lua");
  const auto run = [&](std::vector<std::string> words, const std::map<std::string, std::string>& environment) {
    words.insert(words.begin(), {"run", "tiny.toml"});
    const auto result = place.run(words, environment);
    return std::to_string(result.code) + ": " + result.err;
  };
  std::map<std::string, std::string> job = {
      {"RACK_NODE", "0"}, {"RACK_NODES", "2"}, {"RACK_HEAD", "127.0.0.1"}, {"RACK_JOB", "1"}};
  CHECK_THAT(run({}, {}), ContainsSubstring("2: error: ") && ContainsSubstring("rack.lua:12: RACK_NODE is not set"));
  CHECK_THAT(run({"--set", "devices.num_nodes=3"}, job),
             ContainsSubstring("the recipe uses 3 nodes, but the plug-in rack says that there are 2"));
  CHECK_THAT(run({"--node-rank", "0", "--master-addr", "127.0.0.1"}, job),
             ContainsSubstring("--node-rank with plugins.cluster_environment: the plug-in rack already says which node "
                               "this is"));
  CHECK_THAT(
      run({"--set", "devices.rendezvous_timeout=1s"}, job),
      ContainsSubstring("ranks 2, 3 of 4 (node 1) did not connect within 1s: start the same command there, where "
                        "the plug-in rack gives node_rank = 1"));
  place.write(
      "sweep.toml",
      "[sweep]\nrecipe = \"tiny.toml\"\nmetric = \"loss\"\nmethod = \"grid\"\n[sweep.space]\n\"optimizer.lr\" = "
      "[0.001, 0.002]\n");
  const auto sweep = place.run({"sweep", "run", "sweep.toml"}, job);
  CHECK(sweep.code == 2);
  CHECK_THAT(sweep.err,
             ContainsSubstring("the plug-in rack says that this is node 0 of 2, and a sweep is one process"));
  CHECK_FALSE(fs::exists(place.home() / "ledger.db"));
  job["RACK_NODES"] = "1";
  const auto alone = place.run({"sweep", "run", "sweep.toml", "--json"}, job);
  INFO(alone.err);
  REQUIRE(alone.code == 0);
  CHECK(alone.json().at("sweep").at("counts").at("finished") == 2);
}
