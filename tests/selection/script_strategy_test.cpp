// Strategies in Lua in recipes and plans.
#include "runner/selection/script_strategy.hpp"
#include "runner/selection/comm_hook_options.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "strategies/program/parallel_plan.hpp"
#include "tests/selection/recipe_place.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

const std::string averaging =
    "return {about = 'Averages.', replicas_differ = true, options = {every = {type = 'integer', default = 2, min = 1}, "
    "how = {type = 'string', default = 'mean', choices = {'mean', 'median'}}}}";

}  // namespace

TEST_CASE("a strategy file is found in the folder of the recipe, and the recipe gives its options", "[lua]") {
  RecipePlace place("[strategy]\nname = \"lua:files/mine.lua\"\nevery = 5\n");
  place.write("files/mine.lua", averaging);
  Recipe recipe = place.load();
  CHECK(recipe.strategy.name == "lua:" + (place.folder.path / "files/mine.lua").string());
  Plan plan = make_plan(recipe, cpus(2), 256);
  CHECK(plan.entry->summary == "Averages.");
  CHECK(plan.recipe.strategy.name == recipe.strategy.name);
  CHECK(plan.recipe.strategy.options == json{{"every", 5}, {"how", "mean"}, {"bucket_cap_mb", 25}});
}

TEST_CASE("mistakes in options of a strategy in Lua are reported like those of others", "[lua]") {
  RecipePlace place("[strategy]\nname = \"lua:mine.lua\"\nevry = 5\n");
  place.write("mine.lua", averaging);
  CHECK_THAT(place.wrong(), ContainsSubstring("recipe.toml:3:1: error: strategy `lua:mine.lua` has no option `evry`") &&
                                ContainsSubstring("did you mean `every`?"));
  place.write("recipe.toml",
              "[strategy]\nname = \"lua:mine.lua\"\nevery = 0\nhow = \"meen\"\n" + recipe_without_strategy);
  CHECK_THAT(place.wrong(), ContainsSubstring("recipe.toml:3:1: error: `every` must be at least 1, not 0") &&
                                ContainsSubstring("recipe.toml:4:1: error: `how` cannot be \"meen\"") &&
                                ContainsSubstring("did you mean `mean`?"));
  place.write("mine.lua", "return {\n  after = function() end}");
  CHECK_THAT(place.wrong(), ContainsSubstring("mine.lua:2:1: error: `after` is not part of a strategy"));
}

TEST_CASE("memory and traffic that a strategy file does not define are unknown", "[lua]") {
  RecipePlace place("[strategy]\nname = \"lua:mine.lua\"\n");
  place.write("mine.lua", averaging);
  Plan plan = make_plan(place.load(), cpus(2), 256);
  json said = plan.to_json();
  for (const char* key :
       {"memory_bytes_per_rank", "memory_parts", "between_steps_bytes_per_rank", "traffic", "step_seconds"})
    CHECK(said.at(key).is_null());
  CHECK(plan.notes.back() ==
        fmt::format("memory and traffic of `{}` are not known: its file has no function for it", plan.entry->name));
  Recipe automatic = place.load({"train.micro_batch_size=auto"});
  CHECK_THROWS_WITH(make_plan(automatic, cpus(2), 256),
                    ContainsSubstring("train.micro_batch_size = \"auto\" needs the memory of a step"));
  RecipePlace shipped("[strategy]\nname = \"lua:ddp\"\n");
  Plan known = make_plan(shipped.load(), cpus(2), 256);
  CHECK(known.memory.total() > 0);
  REQUIRE(known.traffic.size() == 1);
  CHECK(known.traffic[0].collective == "all_reduce");
  CHECK_FALSE(known.to_json().at("memory_bytes_per_rank").is_null());
}

TEST_CASE("communication of a strategy in Lua can overlap with backward only if it is in `reduce`", "[lua]") {
  for (const auto& [name, in_backward] : {std::pair("lua:topk", true), std::pair("lua:local_sgd", false)}) {
    RecipePlace place(std::string("strategy = \"") + name + "\"");
    const Plan plan = make_plan(place.load(), cpus(2), 256);
    CHECK(plan.entry->plan(plan.job).reduces_in_backward == in_backward);
  }
}

TEST_CASE("an invalid result of `memory`, `traffic` or `shard` is refused", "[lua]") {
  RecipePlace place("[strategy]\nname = \"lua:mine.lua\"\n");
  auto refused = [&](const std::string& functions, const std::string& what) {
    place.write("mine.lua", "return {reduce = function() end, " + functions + "}");
    CHECK_THROWS_WITH(make_plan(place.load(), cpus(2), 256), ContainsSubstring(what));
  };
  refused("memory = function() return 'much' end", "`memory` must return the bytes that a rank keeps, not \"much\"");
  refused("memory = function() return 1e300 end", "`memory` must return the bytes that a rank keeps, not 1e+300");
  refused("memory = function(job) return job.nothing.x end", "failed in memory: ");
  refused("traffic = function() return {{collective = 'all_reduse', calls = 1, bytes = 2}} end",
          "`traffic` must return a list of {collective = \"all_reduce\", calls = n, bytes = of all calls}, not "
          "{\"bytes\":2,\"calls\":1,\"collective\":\"all_reduse\"}");
  refused("traffic = function() return {{collective = 'all_reduce', calls = 1, bytes = 1e300}} end",
          "not {\"bytes\":1e+300,\"calls\":1,\"collective\":\"all_reduce\"}");
  refused("shard = function() return 1 end, memory = function() return 0 end",
          "`shard` must return true or false, not 1");
}

TEST_CASE("a registered name can be used like a built-in one", "[lua]") {
  RecipePlace place("[strategy]\nname = \"averaged\"\nregistry = \"lua/strategies.lua\"\nevery = 3\n");
  place.write("lua/mine.lua", averaging);
  place.write("lua/strategies.lua", "strategies.register('averaged', require 'mine', 'Now and then')");
  Plan plan = make_plan(place.load(), cpus(2), 256);
  CHECK(plan.entry->name == "averaged");
  CHECK(plan.entry->summary == "Now and then");
  CHECK(plan.recipe.strategy.options.at("every") == 3);
  CHECK_THAT(place.wrong({"strategy=averagd"}),
             ContainsSubstring("unknown strategy `averagd`") && ContainsSubstring("did you mean `averaged`?"));
  CHECK(place.wrong({"strategy=ddp"}).empty());
  CHECK(make_plan(place.load({"strategy=ddp"}), cpus(2), 256).entry->name == "ddp");
  CHECK(make_plan(place.load({"strategy=averaged"}), cpus(2), 256).entry->name == "averaged");
  CHECK(make_plan(place.load({"strategy=auto"}), cpus(2), 256).entry->name == "ddp");
  CHECK(make_plan(place.load({"strategy=single"}), cpus(1), 256).entry->name == "single");
  RecipePlace without("[strategy]\nname = \"averaged\"\n");
  CHECK_THAT(without.wrong(), ContainsSubstring("unknown strategy `averaged`"));
}

TEST_CASE("a comm hook in Lua gets its options from ddp_comm_hook_options", "[lua]") {
  RecipePlace place(
      "[strategy]\nname = \"ddp\"\nddp_comm_hook = \"lua:hook.lua\"\nddp_comm_hook_options = { density = 0.5 }\n");
  place.write("hook.lua",
              "return {options = {density = {type = 'number', default = 0.1, max = 1}}, reduce = function() end}");
  Recipe recipe = place.load();
  CHECK(recipe.strategy.options.at("ddp_comm_hook") == "lua:" + (place.folder.path / "hook.lua").string());
  std::vector<Diagnostic> none;
  CHECK(comm_hook_options(recipe, none) == json{{"density", 0.5}});
  Plan plan = make_plan(recipe, cpus(2), 256);
  CHECK(plan.entry->name == "ddp");
  CHECK(plan.to_json().at("traffic").is_null());
  CHECK_THAT(
      place.wrong({"strategy.ddp_comm_hook_options={densty=1}"}),
      ContainsSubstring("the comm hook hook has no option `densty`") && ContainsSubstring("did you mean `density`?"));
  CHECK_THAT(place.wrong({"strategy.ddp_comm_hook_options={density=2}"}),
             ContainsSubstring("`density` must be at most 1, not 2"));
  CHECK_THAT(place.wrong({"strategy.ddp_comm_hook=none"}),
             ContainsSubstring("`ddp_comm_hook_options` needs a `ddp_comm_hook`"));
  CHECK_THAT(place.wrong({"strategy.ddp_comm_hook=noop_hook"}),
             ContainsSubstring("the comm hook noop_hook has no options: remove `ddp_comm_hook_options`"));
  CHECK_THAT(place.wrong({"strategy.ddp_comm_hook=powerSGD_hook", "strategy.ddp_comm_hook_options={process_group=1}"}),
             ContainsSubstring("has no option `process_group`; remove it"));
  CHECK_THAT(place.wrong({"strategy.ddp_comm_hook=powerSGD_hook", "strategy.ddp_comm_hook_options=PowerSGDState()"}),
             ContainsSubstring("must be a table such as { matrix_approximation_rank = 1 }, not \"PowerSGDState()\""));
  CHECK_THAT(place.wrong({"strategy={name=\"auto\",ddp_comm_hook=\"powerSGD_hook\","
                          "ddp_comm_hook_options={matrix_approximation_rank=\"two\"}}"}),
             ContainsSubstring("`matrix_approximation_rank` must be an integer"));
  CHECK_THAT(place.wrong({"strategy.ddp_comm_hook=fp16"}), ContainsSubstring("`ddp_comm_hook` cannot be \"fp16\""));
}

TEST_CASE("a registry may reuse the name of a strategy that is not built, and lists only usable ones", "[lua]") {
  RecipePlace place("[strategy]\nname = \"SingleHPUStrategy\"\nregistry = \"mine.lua\"\n");
  place.write("mine.lua",
              "for _, name in ipairs(strategies.available_strategies()) do assert(name ~= 'hpu', name) end\n"
              "strategies.register('SingleHPUStrategy', " +
                  averaging.substr(averaging.find('{')) + ")\n");
  CHECK(place.wrong().empty());
  CHECK(make_plan(place.load(), cpus(2), 256).entry->summary == "Averages.");
}
