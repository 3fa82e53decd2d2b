// DeepSpeed configuration files in the commands run, import and print --as.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const std::string configuration = R"({
  // what a DeepSpeed user has at hand
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 3,
  "gradient_clipping": 1.0,
  "steps_per_print": 5,
  "zero_optimization": {"stage": 2, "reduce_bucket_size": 2e4, "overlap_comm": true},
  "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}},
  "wall_clock_breakdown": true
})";

/// The tiny recipe without a batch size; the configuration sets it.
void write_deepspeed_recipe(const Workplace& place, const std::string& strategy) {
  write_tiny_recipe(place, strategy);
  auto text = slurp(place.path() / "tiny.toml");
  auto at = text.find("global_batch_size = 12\n");
  place.write("tiny.toml", text.erase(at, std::string("global_batch_size = 12\n").size()));
}

}  // namespace

TEST_CASE("a recipe with a DeepSpeed configuration trains with the configuration's settings", "[e2e]") {
  Workplace place;
  place.write("ds.json", configuration);
  write_deepspeed_recipe(place, "[strategy]\nname = \"deepspeed\"\nconfig = \"ds.json\"\n");
  auto result = place.run({"run", "tiny.toml", "--json"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK_THAT(result.err, ContainsSubstring("ds.json:9:3: `wall_clock_breakdown` is ignored"));
  auto row = place.run({"show", "last", "--json"}).json();
  INFO(row.dump(1));
  auto plan = row.at("plan");
  CHECK(plan.at("strategy") == "zero");
  CHECK(plan.at("micro_batch_size") == 2);
  CHECK(plan.at("accumulation") == 3);
  CHECK(plan.at("options").at("reduce_bucket_size") == 20000);
}

TEST_CASE("import deepspeed prints sections of a recipe; print --as deepspeed prints a configuration", "[e2e]") {
  Workplace place;
  place.write("ds.json", configuration);
  write_deepspeed_recipe(place, "[strategy]\nname = \"deepspeed\"\nconfig = \"ds.json\"\n");
  auto resolved = place.run({"print", "tiny.toml"});
  REQUIRE(resolved.code == 0);

  auto again = place.run({"print", "tiny.toml", "--as", "deepspeed"});
  REQUIRE(again.code == 0);
  CHECK(nlohmann::json::parse(again.out).at("zero_optimization").at("stage") == 2);
  CHECK(nlohmann::json::parse(again.out).at("gradient_clipping") == 1.0);

  CHECK(nlohmann::json::parse(again.out).at("gradient_accumulation_steps") == 3);
  auto open = place.run({"print", "tiny.toml", "--as", "deepspeed", "--unset", "strategy.config", "--set",
                         "strategy.stage=2", "precision=auto"});
  INFO(open.out << open.err);
  REQUIRE(open.code == 0);
  CHECK(nlohmann::json::parse(open.out).at("train_micro_batch_size_per_gpu") == 8);
  CHECK(nlohmann::json::parse(open.out).at("gradient_accumulation_steps") == 1);
  CHECK_THAT(open.err, ContainsSubstring("DeepSpeed itself needs values: bf16.enabled, fp16.enabled"));

  auto sections = place.run({"import", "deepspeed", "ds.json"});
  REQUIRE(sections.code == 0);
  CHECK_THAT(sections.out, ContainsSubstring("name = \"zero\"\nstage = 2\n"));
  CHECK_THAT(sections.out, ContainsSubstring("lr = 0.002"));
  CHECK_THAT(sections.out, ContainsSubstring("# ds.json:9:3: `wall_clock_breakdown` is ignored"));
}

TEST_CASE("a file that cannot be imported is refused with reason and solution", "[e2e]") {
  Workplace place;
  place.write("bad.json", "{\n  \"zero_optimization\": {\"stagee\": 2}\n}\n");
  auto bad = place.run({"import", "deepspeed", "bad.json"});
  CHECK(bad.code == 2);
  CHECK_THAT(
      bad.err,
      ContainsSubstring("bad.json:2:25: error: DeepSpeed's configuration has no key `stagee` in `zero_optimization`"));
  place.write("two.json", R"({
  "optimizer": {"type": "AdamW", "params": {"lr": -1}},
  "zero_optimization": {"stage": 2, "reduce_bucket_size": "big", "stage3_max_live": 1}
})");
  auto all = place.run({"import", "deepspeed", "two.json"}).err;
  CHECK_THAT(all, ContainsSubstring("`lr` must be at least 0") && ContainsSubstring("`reduce_bucket_size`") &&
                      ContainsSubstring("no key `stage3_max_live`"));
  place.write("recipe.toml", "[model]\ndim = 8\n");
  CHECK_THAT(
      place.run({"import", "deepspeed", "recipe.toml"}).err,
      ContainsSubstring("recipe.toml: error: this looks like a TOML recipe, not like JSON; check it with: runner "
                        "check recipe.toml"));
  auto missing = place.run({"import", "deepspeed", "none.json"});
  CHECK(missing.code == 2);
  CHECK_THAT(missing.err, ContainsSubstring("there is no file none.json"));
  auto checkpoint = place.run({"import", "deepspeed-checkpoint", "somewhere"});
  CHECK(checkpoint.code == 2);
  CHECK_THAT(checkpoint.err, ContainsSubstring("pickle") && ContainsSubstring("init_from"));
  CHECK_THAT(place.run({"help", "import"}).out, !ContainsSubstring("deepspeed-checkpoint"));
}
