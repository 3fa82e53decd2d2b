// What is planned, told and measured around steps that XLA compiles: memory, threads, devices of other plug-ins, profiles.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/resume_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using nlohmann::json;

namespace {

/// One layer of the tiny recipe, because a compiler needs seconds for each.
CommandResult ask(const Workplace& place, std::vector<std::string> arguments, const std::vector<std::string>& settings,
                  const std::map<std::string, std::string>& environment = {}) {
  arguments.insert(arguments.begin() + 1, {"tiny.toml", "--set", "model.n_layers=1"});
  for (const auto& text : settings) arguments.insert(arguments.end(), {"--set", text});
  return place.run(arguments, environment);
}

/// The plug-in for CPUs under another name: nobody knows on which devices it computes before it is open.
std::string other_plugin(const Workplace& place) {
  const auto path = place.path() / "libother.so";
  if (!fs::exists(path)) fs::create_symlink(RUNNER_XLA_PLUGIN, path);
  return path.string();
}

std::vector<std::string> eight_tpus(const Workplace& place, const std::string& strategy) {
  return {"strategy={name=\"" + strategy + "\",plugin=\"" + other_plugin(place) + "\"}", "devices.accelerator=tpu",
          "devices.devices=8", "train.global_batch_size=16"};
}

}  // namespace

TEST_CASE("recommend asks the compiler about a strategy in Lua that extends xla_fsdp, with the optimizer of the file",
          "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.write("mine.lua", R"(return {
  base = "xla_fsdp",
  about = "xla_fsdp without decay of matrices.",
  setup_optimizer = function(groups)
    table.insert(groups, 1, {params = {"*.weight"}, weight_decay = 0})
    return groups
  end,
})");
  const std::vector<std::string> settings{"strategy={name=\"lua:mine.lua\",debug=true}", "train.micro_batch_size=6"};
  const auto recommended = ask(place, {"recommend", "--json"}, settings);
  INFO(recommended.err);
  REQUIRE(recommended.code == 0);
  CHECK_THAT(recommended.err, ContainsSubstring("XLA compiles the step of lua:") &&
                                  ContainsSubstring("mine.lua, to learn") && !ContainsSubstring("is an estimate"));
  const auto result = ask(place, {"run", "--json"}, settings);
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK_THAT(result.err, ContainsSubstring("XLA loaded the program of the step") &&
                             !ContainsSubstring("XLA compiled the program of the step"));
}

TEST_CASE("mark_step is accepted, because there is nothing to mark", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  for (const std::string strategy : {"single_xla", "xla", "xla_fsdp"}) {
    INFO(strategy);
    const auto result = ask(
        place, {"check"},
        {"strategy={name=\"" + strategy + "\",mark_step=true}", strategy == "single_xla" ? "devices=1" : "devices=2"});
    CHECK(result.code == 0);
    CHECK_THAT(result.out + result.err,
               ContainsSubstring("`mark_step`: one program is the whole step; there is nothing to mark"));
  }
}

TEST_CASE("XLA's pool on CPU has threads_per_rank threads for each rank, unless PJRT_NPROC is set", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.replace_worker("echo \"$1 ${PJRT_NPROC:-none}\" >> " + (place.path() / "asked").string() + "\nexit 1");
  const auto told = [&](const std::string& verb, const std::string& strategy,
                        const std::map<std::string, std::string>& environment = {}) {
    place.write("asked", "");
    ask(place, {verb}, {"strategy=" + strategy, "devices.threads_per_rank=3", "train.micro_batch_size=6"}, environment);
    return slurp(place.path() / "asked");
  };
  CHECK(told("run", "xla") == "--run-dir 6\n");
  CHECK(told("recommend", "xla") == "--compiled-memory 6\n");
  CHECK(told("run", "xla", {{"PJRT_NPROC", "5"}}) == "--run-dir 5\n");
  CHECK(told("recommend", "xla", {{"PJRT_NPROC", "5"}}) == "--compiled-memory 5\n");
  CHECK_THAT(told("run", "ddp"),
             StartsWith("--run-dir none\n") && !ContainsSubstring("6"));  // one rank may end the other
}

TEST_CASE("Ctrl-C while recommend waits for the compiler leaves no files", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.replace_worker("exec sleep 100");
  const auto folder = place.path() / "temporary";
  fs::create_directories(folder);
  for (const int signal : {SIGINT, SIGTERM}) {
    const pid_t pid =
        place.start({"recommend", "tiny.toml", "--set", "strategy=xla", "--set", "train.micro_batch_size=6"}, "command",
                    {{"TMPDIR", folder.string()}});
    const bool asked = wait_until([&] { return !children_of(pid).empty() && !fs::is_empty(folder); }, 60);
    const auto workers = children_of(pid);
    ::kill(pid, signal);
    const auto result = place.finish(pid);
    INFO(result.err);
    CHECK(asked);
    CHECK(result.code == 128 + signal);
    CHECK(fs::is_empty(folder));
    for (const pid_t worker : workers) CHECK(wait_until([&] { return ::kill(worker, 0) != 0; }, 10));
  }
}

TEST_CASE("a device whose memory is full ends the run with advice about memory", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const auto result =
      ask(place, {"run", "--json"},
          {std::string("strategy={name=\"single_xla\",plugin=\"") + RUNNER_FULL_PLUGIN + "\"}", "devices=1"});
  CHECK(result.code == 1);
  CHECK_THAT(result.err, ContainsSubstring("Ran out of memory in memory space hbm") &&
                             ContainsSubstring("a step of this recipe needs") &&
                             ContainsSubstring("possible changes, cheapest first") &&
                             ContainsSubstring("train.micro_batch_size = 3") && !ContainsSubstring("strategy ="));
  CHECK(events_of(place, "failed").back().at("kind") == "oom");
}

TEST_CASE("check plans for the devices of another plug-in without a limit from host memory", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const auto result = ask(place, {"check"}, eight_tpus(place, "xla_fsdp"));
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.out + result.err, ContainsSubstring("xla_fsdp on 8 PJRT devices") &&
                                          ContainsSubstring("of host memory") && !ContainsSubstring("CPU rank") &&
                                          !ContainsSubstring("the limit is"));
}

TEST_CASE("recommend considers only compiled strategies for the devices of another plug-in", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const auto settings = eight_tpus(place, "xla_fsdp");
  const auto result = ask(place, {"recommend", "--json"}, settings);
  INFO(result.err);
  REQUIRE(result.code == 0);
  const json found = result.json();
  CHECK(found.at("devices") == "8 x PJRT device");
  CHECK(found.at("limit_bytes_per_rank") == 0);
  int own = 0;
  for (const auto& candidate : found.at("candidates")) {
    const auto name = candidate.at("strategy").get<std::string>();
    INFO(name);
    CHECK((name == "xla" || name == "single_xla" || name == "xla_fsdp"));
    CHECK(candidate.at("options").at("plugin") == other_plugin(place));
    if (candidate.at("recipes_own").get<bool>()) own += name == "xla_fsdp";
  }
  CHECK(own == 1);
  const auto printed = ask(place, {"recommend", "--toml"}, settings);
  INFO(printed.err);
  REQUIRE(printed.code == 0);
  CHECK_THAT(printed.out, ContainsSubstring("plugin = \"" + other_plugin(place) + "\""));
  place.write("recommended.toml", printed.out);
  const auto checked = place.run({"check", "recommended.toml"});
  INFO(checked.err);
  CHECK(checked.code == 0);
}

TEST_CASE("the profile does not call a compiled step forward", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const auto result = ask(place, {"run", "--json"}, {"strategy=xla", "run.profiler=simple"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK_THAT(result.err, ContainsSubstring("program (forward, backward, sums, update)"));
  const auto phases = events_of(place, "profile").back().at("phases");
  CHECK(phases.at("program") > 0);
  CHECK_FALSE(phases.contains("forward"));
  CHECK_FALSE(phases.contains("update"));
}
