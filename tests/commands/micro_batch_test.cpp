// train.micro_batch_size = "auto" in complete runs: choosing, measuring, correcting and keeping the size.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include "runner/base/files.hpp"
#include "tests/support/command.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::vector<std::string> automatic = {"--set", "train.micro_batch_size=auto", "devices=1",
                                            "checkpoint.save_top_k=0"};

nlohmann::json plan_of(const Workplace& place, const std::string& run) {
  return nlohmann::json::parse(read_file(place.home() / "runs" / run / "plan.json"));
}

/// The tiny recipe without train.global_batch_size: the micro-batch size decides.
void write_recipe_without_batch(const Workplace& place) {
  write_tiny_recipe(place);
  std::string recipe = read_file(place.path() / "tiny.toml");
  auto at = recipe.find("global_batch_size");
  REQUIRE(at != std::string::npos);
  recipe.erase(at, recipe.find('\n', at) - at);
  write_file_atomic(place.path() / "tiny.toml", recipe);
}

CommandResult run(const Workplace& place, std::vector<std::string> words, uint64_t private_bytes = 0) {
  words.insert(words.end(), automatic.begin(), automatic.end());
  words.push_back("--json");
  return place.finish(place.start(words, "command", {}, private_bytes));
}

}  // namespace

TEST_CASE("micro_batch_size = \"auto\" is the largest size that fits, and prints its prediction", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto result = run(place, {"run", "tiny.toml", "--set", "strategy=single"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  auto json = nlohmann::json::parse(result.out);
  CHECK(plan_of(place, json["run"])["micro_batch_size"] == 12);
  CHECK_THAT(result.err, ContainsSubstring("the micro-batch was chosen by prediction: "));
  double predicted = plan_of(place, json["run"])["memory_bytes_per_rank"];
  CHECK(std::abs(json["peak_memory_bytes_per_rank"][0].get<double>() / predicted - 1) < 0.015);
}

TEST_CASE("a first step that runs out of memory is repeated with the next smaller micro-batch", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  // Private memory is limited. The prediction does not know this limit.
  auto result =
      run(place,
          {"run", "tiny.toml", "--set", "model.max_seq_len=256", "--set", "model.dim=64", "--set",
           "train.global_batch_size=128", "--set", "train.max_steps=2", "--set", "checkpoint.save_at_end=false"},
          440 << 20);
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK_THAT(result.err, ContainsSubstring("the first step ran out of memory with micro-batches of 128; trying the "
                                           "next smaller size, 64"));
  auto json = nlohmann::json::parse(result.out);
  auto plan = plan_of(place, json["run"]);
  CHECK(plan["micro_batch_size"].get<int>() < 128);
  CHECK(plan["micro_batch_size"].get<int>() * plan["accumulation"].get<int>() == 128);
  auto row = nlohmann::json::parse(place.run({"show", json["run"], "--json"}).out);
  CHECK(row["status"] == "finished");
  CHECK(row["plan"]["micro_batch_size"] == plan["micro_batch_size"]);
  CHECK(row["attempts"].size() >= 2);
  CHECK(row["steps"] == 2);
}

TEST_CASE("a run that was killed before its plan was written chooses its micro-batch size when it is resumed",
          "[e2e]") {
  Workplace place;
  write_recipe_without_batch(place);
  auto first = run(place, {"run", "tiny.toml", "--set", "train.max_steps=2"});
  INFO(first.err);
  REQUIRE(first.code == 0);
  auto id = nlohmann::json::parse(first.out)["run"].get<std::string>();
  auto chosen = plan_of(place, id)["micro_batch_size"];
  fs::remove(place.home() / "runs" / id / "plan.json");
  fs::remove_all(place.home() / "runs" / id / "checkpoints");
  auto again = place.run({"resume", id, "--from-beginning", "--set", "train.max_steps=3"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK(plan_of(place, id)["micro_batch_size"] == chosen);
}

TEST_CASE("a resumed run keeps its micro-batch size", "[e2e]") {
  Workplace place;
  write_recipe_without_batch(place);
  auto first = run(place, {"run", "tiny.toml", "--set", "train.max_steps=2", "--set", "model.max_seq_len=16", "--set",
                           "devices.memory_limit=400MiB"});
  INFO(first.err);
  REQUIRE(first.code == 0);
  auto id = nlohmann::json::parse(first.out)["run"].get<std::string>();
  auto chosen = plan_of(place, id)["micro_batch_size"];
  CHECK(chosen == 1024);
  double predicted = plan_of(place, id)["memory_bytes_per_rank"];
  CHECK(std::abs(nlohmann::json::parse(first.out)["peak_memory_bytes_per_rank"][0].get<double>() / predicted - 1) <
        0.015);
  // With this limit a new run would use a smaller size. The resumed run keeps its size, which does not fit.
  auto refused = place.run({"resume", id, "--set", "train.max_steps=4", "--set", "devices.memory_limit=200MiB"});
  CHECK(refused.code == 1);
  CHECK_THAT(refused.err, ContainsSubstring("nothing fits: the least is single at micro-batch 1024"));
  auto again = place.run({"resume", id, "--set", "train.max_steps=4"});
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK(plan_of(place, id)["micro_batch_size"] == chosen);
}
