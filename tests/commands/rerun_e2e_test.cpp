// runner rerun and what a run records for it: the patch of the work tree, its scripts and the digests of its data.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <cstdlib>

#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

void git(const Workplace& place, const std::string& arguments) {
  const std::string command = "git -C '" + place.path().string() +
                              "' -c user.name=a -c user.email=a@example.org -c commit.gpgsign=false " + arguments +
                              " >/dev/null 2>&1";
  REQUIRE(std::system(command.c_str()) == 0);
}

json shown(const Workplace& place, const std::string& run) {
  auto result = place.run({"show", run, "--json"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  return result.json();
}

json losses_of(const Workplace& place, const std::string& run) {
  return place.run({"metrics", run, "--name", "loss", "--json"}).json().at("points");
}

const std::string hook = "return { on_train_batch_end = function(ctx) ctx:log(\"mine\", 1) end }\n";

}  // namespace

TEST_CASE("expectation 8: rerun reproduces a run from the ledger alone, and --exact names what differs", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[hooks]\nfiles = [\"mine.lua\"]\n");
  place.write("mine.lua", hook);
  git(place, "init --quiet");
  git(place, "add tiny.toml mine.lua");
  git(place, "commit -m first");
  place.write("mine.lua", "-- changed\n" + hook);
  const auto first = place.run({"run", "tiny.toml", "--json", "--set", "optimizer.lr=0.002"});
  INFO(first.err);
  REQUIRE(first.code == 0);
  const std::string id = first.json().at("run");
  const json before = shown(place, id);
  CHECK(slurp(fs::path(before["run_dir"].get<std::string>()) / "code.patch").find("+-- changed\n") !=
        std::string::npos);
  CHECK(before["git"]["patch"]["cut"] == false);
  CHECK(before["inputs"]["data"]["files"][0]["xxh3"].get<std::string>().size() == 32);
  CHECK(before["scripts"].size() == 1);

  // The recipe is gone, the script has changed, and the run's folder was deleted.
  fs::remove(place.path() / "tiny.toml");
  place.write("mine.lua", "return nonsense(\n");
  fs::remove_all(before["run_dir"].get<std::string>());
  const auto again = place.run({"rerun", id, "--json"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK_THAT(again.err, ContainsSubstring("mine.lua has changed; this run uses the text of then, "));
  CHECK_THAT(again.err, ContainsSubstring("note: not as in run " + id + ": code, digest of the uncommitted changes: "));
  const std::string child = again.json().at("run");
  CHECK(child != id);
  CHECK(losses_of(place, child) == losses_of(place, id));
  CHECK(losses_of(place, child).size() == 12);
  const json after = shown(place, child);
  CHECK(after["recipe"] == before["recipe"]);
  CHECK(after["origins"]["optimizer.lr"] == before["origins"]["optimizer.lr"]);
  CHECK(after["parents"][0]["id"] == id);
  CHECK(after["parents"][0]["kind"] == "rerun");
  CHECK(shown(place, id)["children"][0]["id"] == child);
  CHECK_THAT(place.run({"show", id}).out, ContainsSubstring("  children   " + child + " (rerun)\n") ||
                                              ContainsSubstring("children  " + child + " (rerun)\n"));
  CHECK_THAT(place.run({"show", child}).out, ContainsSubstring(id + " (rerun)\n"));

  const auto refused = place.run({"rerun", id, "--exact"});
  CHECK(refused.code == 4);
  CHECK_THAT(refused.err, ContainsSubstring("error: run " + id +
                                            " cannot be repeated exactly:\n  code, digest of the "
                                            "uncommitted changes: "));
}

TEST_CASE("rerun --exact trains a run again if nothing differs, and refuses another program, machine or data",
          "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"fsdp\"\n");
  place.write("validation.txt", std::string(100, 'a'));
  const auto first = place.run({"run", "tiny.toml", "--json", "--set", "train.max_steps=4",
                                "data.validation=[\"validation.txt\"]", "--unset", "data.validation_fraction"});
  INFO(first.err);
  REQUIRE(first.code == 0);
  const std::string id = first.json().at("run");
  const auto again = place.run({"rerun", "--exact", "--json"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  const std::string child = again.json().at("run");
  CHECK(losses_of(place, child) == losses_of(place, id));
  CHECK(shown(place, child)["resolved"] == shown(place, id)["resolved"]);
  CHECK(shown(place, child)["config"] == shown(place, id)["config"]);
  const auto diff = place.run({"diff", id, child, "--config", "--exit-code"});
  CHECK(diff.code == 0);
  CHECK_THAT(diff.out, ContainsSubstring("equal: config\n"));

  CHECK_THAT(place.run({"rerun", id, "--exact", "--set", "run.seed=2"}).err,
             ContainsSubstring("error: --exact trains what was recorded, so it takes no --set and no --unset\n"));
  const std::string text = slurp(place.path() / "text.txt");
  place.write("text.txt", "X" + text.substr(1));
  place.write("validation.txt", std::string(100, 'b'));
  json facts = shown(place, id)["host"];
  facts["cpu"] = "another CPU";
  facts["cores"] = 64;
  place.write("facts.json", facts.dump());
  const auto refused =
      place.run({"rerun", id, "--exact"}, {{"RUNNER_FAKE_FACTS", (place.path() / "facts.json").string()}});
  INFO(refused.err);
  CHECK(refused.code == 4);
  CHECK_THAT(refused.err, ContainsSubstring("\n  hardware, cores: "));
  CHECK_THAT(refused.err, ContainsSubstring(" then, 64 now\n"));
  CHECK_THAT(refused.err, ContainsSubstring("\n  hardware, cpu: "));
  CHECK_THAT(refused.err, ContainsSubstring(" then, another CPU now\n"));
  CHECK_THAT(refused.err, ContainsSubstring("\n  data, digest of " + (place.path() / "text.txt").string() + ": "));
  CHECK_THAT(refused.err, ContainsSubstring("\n  data: the content of " + (place.path() / "validation.txt").string() +
                                            " has changed\n"));
  CHECK(place.run({"ls", "--json"}).json().at("runs").size() == 2);
}

TEST_CASE("a run that starts from another run's checkpoint is linked to it", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[checkpoint]\nevery_n_steps = 2\n");
  const auto first = place.run({"run", "tiny.toml", "--json", "--set", "train.max_steps=2"});
  INFO(first.err);
  REQUIRE(first.code == 0);
  const std::string id = first.json().at("run");
  const std::string folder = first.json().at("run_dir").get<std::string>() + "/checkpoints/step-000002";
  const auto second = place.run({"run", "tiny.toml", "--json", "--checkpoint", folder, "--set", "train.max_steps=4"});
  INFO(second.err);
  REQUIRE(second.code == 0);
  const std::string child = second.json().at("run");
  CHECK(shown(place, child)["parents"][0]["kind"] == "continued");
  CHECK(shown(place, id)["children"][0]["id"] == child);
  const auto again = place.run({"rerun", child, "--json"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK(losses_of(place, again.json().at("run")) == losses_of(place, child));

  // Killed before its first attempt began, its row alone has the checkpoint.
  const std::vector<std::string> kid{"run",   "tiny.toml",         "--checkpoint", folder,
                                     "--set", "train.max_steps=4", "run.name=kid"};
  CHECK(place.run(kid, {{"RUNNER_FAULT", "committed:1"}}).code == 128 + SIGKILL);
  const auto of_kid = place.run({"rerun", "kid", "--json"});
  INFO(of_kid.err);
  REQUIRE(of_kid.code == 0);
  CHECK(losses_of(place, of_kid.json().at("run")) == losses_of(place, child));

  // Another checkpoint has the name of the one that it started from.
  const auto other = place.run({"run", "tiny.toml", "--json", "--set", "train.max_steps=2", "run.seed=9"});
  REQUIRE(other.code == 0);
  fs::remove_all(folder);
  fs::copy(other.json().at("run_dir").get<std::string>() + "/checkpoints/step-000002", folder);
  const auto refused = place.run({"rerun", child, "--exact"});
  CHECK(refused.code == 4);
  CHECK_THAT(refused.err, ContainsSubstring("\n  checkpoint that it starts from, digest of its manifest: "));
}

TEST_CASE("settings of a resume that made no attempt are not those of the run", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[checkpoint]\nevery_n_steps = 2\n");
  const auto first = place.run({"run", "tiny.toml", "--json", "--set", "train.max_steps=2"});
  REQUIRE(first.code == 0);
  const std::string id = first.json().at("run");
  const json before = shown(place, id);
  const auto unchanged = [&] {
    const json now = shown(place, id);
    for (const char* key : {"config", "resolved", "argv", "build_id"}) CHECK(now[key] == before[key]);
  };
  const std::vector<std::string> resume{"resume", id, "--set", "train.max_steps=4", "optimizer.lr=0.5"};
  CHECK(place.run(resume, {{"RUNNER_FAULT", "committed:1"}}).code == 128 + SIGKILL);
  unchanged();
  const fs::path plan = fs::path(before["run_dir"].get<std::string>()) / "plan.json";
  fs::rename(plan, plan.string() + ".kept");
  fs::create_directories(plan);
  CHECK(place.run(resume).code != 0);
  unchanged();
  fs::remove(plan);
  fs::rename(plan.string() + ".kept", plan);
  const auto good = place.run({"resume", id, "--set", "train.max_steps=4", "--json"});
  INFO(good.err);
  REQUIRE(good.code == 0);
  CHECK(shown(place, id)["config"]["train"]["max_steps"] == 4);
}
