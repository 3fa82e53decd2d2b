// Strategies in Lua that extend a built-in one, in recipes and plans.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/selection/script_optimizer.hpp"
#include "runner/selection/script_strategy.hpp"
#include "strategies/program/parallel_plan.hpp"
#include "tests/selection/recipe_place.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

/// A recipe with the strategy of the file `mine.lua`, which returns a table with these fields.
struct Extension : RecipePlace {
  explicit Extension(const std::string& fields, const std::string& options = "", const std::string& tail = "")
      : RecipePlace("[strategy]\nname = \"lua:mine.lua\"\n" + options, tail) {
    write("mine.lua", "return {" + fields + "}");
  }
  Plan plan(int ranks = 2, const std::vector<std::string>& overrides = {}) const {
    return make_plan(load(overrides), cpus(ranks), 256);
  }
  /// The message with which make_plan() or load() fails, with file names relative to the folder; "" if they do not.
  std::string refused(int ranks = 2, const std::vector<std::string>& overrides = {}) const {
    std::string text;
    try {
      plan(ranks, overrides);
    } catch (const std::exception& error) {
      text = error.what();
    }
    for (size_t at; (at = text.find(folder.path.string() + "/")) != std::string::npos;)
      text.erase(at, folder.path.string().size() + 1);
    return text;
  }
};

Plan built_in(const std::string& strategy, int ranks) {
  return make_plan(RecipePlace("[strategy]\n" + strategy).load(), cpus(ranks), 256);
}

/// The names of the parameters of each trained unit.
std::vector<std::vector<std::string>> units_of(const Plan& plan) {
  std::vector<std::vector<std::string>> units;
  for (const auto& unit : plan.entry->plan(plan.job).units) {
    auto& names = units.emplace_back();
    for (const size_t slot : unit.slots) names.push_back(plan.model->parameters()[slot]->name);
  }
  return units;
}

const std::string two_units =
    "units = function(blocks) local units = {{}, {}} "
    "for i, block in ipairs(blocks) do table.insert(units[i <= 2 and 1 or 2], block.name) end return units end";

}  // namespace

TEST_CASE("an extension without functions is planned like the strategy that it extends", "[lua]") {
  const int ranks = GENERATE(1, 2, 4);
  const auto [file, recipe] =
      GENERATE(table<std::string, std::string>({{"base = 'ddp'", "name = \"ddp\"\n"},
                                                {"base = 'fsdp'", "name = \"fsdp\"\n"},
                                                {"base = 'fsdp', options = {sharding_strategy = 'SHARD_GRAD_OP'}",
                                                 "name = \"fsdp\"\nsharding_strategy = \"SHARD_GRAD_OP\"\n"},
                                                {"base = 'deepspeed_stage_1'", "name = \"zero\"\nstage = 1\n"},
                                                {"base = 'deepspeed_stage_2'", "name = \"zero\"\nstage = 2\n"},
                                                {"base = 'DeepSpeed_Stage_3'", "name = \"zero\"\nstage = 3\n"},
                                                {"base = 'colossalai'", "name = \"colossalai\"\n"}}));
  INFO(file << " on " << ranks);
  const Plan mine = Extension(file).plan(ranks), other = built_in(recipe, ranks);
  CHECK(mine.entry->name.starts_with("lua:"));
  CHECK(mine.recipe.strategy.options == other.recipe.strategy.options);
  CHECK(mine.memory.total() == other.memory.total());
  CHECK(mine.memory.between_steps == other.memory.between_steps);
  json said = mine.to_json(), expected = other.to_json();
  const std::string label = mine.entry->label(mine.job);
  for (auto& note : said.at("notes"))  // one of them may name the strategy
    if (const std::string text = note; text.starts_with(label))
      note = other.entry->label(other.job) + text.substr(label.size());
  for (const char* key : {"memory_parts", "traffic", "step_seconds", "notes"}) CHECK(said.at(key) == expected.at(key));
  CHECK(units_of(mine) == units_of(other));
}

TEST_CASE("options of an extension are those of its base and its own", "[lua]") {
  Extension place(
      "base = 'fsdp', options = {sharding_strategy = 'SHARD_GRAD_OP', every = {type = 'integer', default = 3, min = "
      "1}}",
      "every = 5\ncpu_offload = false\n");
  const Plan plan = place.plan();
  const auto& options = plan.recipe.strategy.options;
  CHECK(options.at("every") == 5);
  CHECK(options.at("sharding_strategy") == "SHARD_GRAD_OP");
  CHECK(options.contains("auto_wrap_policy"));
  CHECK(place.plan(2, {"strategy.sharding_strategy=FULL_SHARD"}).recipe.strategy.options.at("sharding_strategy") ==
        "FULL_SHARD");
  CHECK_THAT(place.wrong({"strategy.every=0"}), ContainsSubstring("`every` must be at least 1, not 0"));
  CHECK_THAT(place.wrong({"strategy.sharding_strategy=FULL"}),
             ContainsSubstring("`sharding_strategy` cannot be \"FULL\""));
  CHECK_THAT(place.wrong({"strategy.evry=2"}), ContainsSubstring("has no option `evry`; did you mean `every`?") ||
                                                   ContainsSubstring("did you mean `every`?"));
  const auto says = [](const std::string& fields, const std::string& message) {
    CHECK_THAT(Extension(fields).wrong(), ContainsSubstring("mine.lua") && ContainsSubstring("error: " + message) &&
                                              ContainsSubstring("recipe.toml:2:8"));
  };
  says("base = 'fsdp', options = {sharding = 'FULL_SHARD'}",
       "option `sharding`: `fsdp` has no such option (did you mean `sharding_strategy`?); a new one is a table with a "
       "`type`");
  says("base = 'fsdp', options = {sharding_strategy = 'FULL'}", "`sharding_strategy` cannot be \"FULL\"");
  says("base = 'fsdp', options = {cpu_offload = {type = 'boolean'}}",
       "option `cpu_offload`: `fsdp` has it already: give its value instead of a table with a type");
  says("base = 'deepspeed_stage_2', options = {stage = 3}",
       "base = \"deepspeed_stage_2\" means stage = 2: use `zero` as base for another value");
}

TEST_CASE("`units` decides which parameters share a unit", "[lua]") {
  const std::string base = GENERATE("ddp", "fsdp", "deepspeed_stage_2", "deepspeed_stage_3");
  INFO(base);
  const Plan plan = Extension("base = '" + base + "', " + two_units).plan(2, {"model.tie_embeddings=false"});
  const auto units = units_of(plan);
  REQUIRE(units.size() == 2);
  CHECK(units[0].front() == "embedding.tokens.weight");
  CHECK(units[0].size() + units[1].size() == plan.model->parameters().size());
  size_t slots = 0;
  for (size_t i = 0; i < 2; ++i) slots += plan.model->blocks[i].parameters.size();
  CHECK(units[0].size() == slots);
  CHECK_THAT(plan.notes.back(), ContainsSubstring("units are made by `units` of ") &&
                                    ContainsSubstring(": options of `" + base + "` for them have no effect"));
  if (base == "fsdp") {
    const auto made = plan.entry->plan(plan.job).units;
    CHECK_FALSE(made[0].keep_after_forward);
    CHECK(made[1].keep_after_forward);
    CHECK(plan.traffic.front().calls != built_in("name = \"fsdp\"\n", 2).traffic.front().calls);
  }
}

TEST_CASE("units name blocks, layers or parameters, and each trained parameter is in one of them", "[lua]") {
  const auto units = [](const std::string& list, const std::string& tail = "") {
    return Extension("base = 'fsdp', units = function(blocks, options) return " + list + " end", "", tail);
  };
  const std::string most = "'embedding', 'blocks.0.attention', 'blocks.0.mlp', 'blocks.1'";
  const std::string all = "{{" + most + ", 'head'}}";
  CHECK(units_of(units(all).plan()).size() == 1);
  const auto refused = [&](const std::string& list, const std::string& what) {
    CHECK_THAT(units(list).refused(), ContainsSubstring("mine.lua: `units`" + what));
  };
  refused("nil", " must return a list of units, each a list of names of blocks, layers or parameters, not null");
  refused("{'embedding'}",
          " must return a list of units, each a list of names of blocks, layers or parameters, not \"embedding\"");
  refused("{{" + most + ", 'hed'}}", ": the model has no block, layer or parameter \"hed\"; did you mean \"head\"?");
  refused("{{" + most + ", 'head'}, {'blocks.0'}}",
          ": the parameter `blocks.0.attention_norm.weight` is in unit 1 and "
          "again in unit 2");
  refused("{{" + most + "}}", ": 2 trained parameters are in no unit: `head.norm.weight`, `head.norm.bias`");
  refused("{{" + most + ", 'head.norm.weight'}}", ": a trained parameter is in no unit: `head.norm.bias`");
  refused("{{'head'}}", ": 26 trained parameters are in no unit: `embedding.tokens.weight`, ");
  CHECK_THAT(Extension("base = 'fsdp', units = function(blocks) return blocks.nothing.x end").refused(),
             ContainsSubstring("failed in units: ") && ContainsSubstring("the recipe names it at recipe.toml:2:8"));
  CHECK_THAT(Extension("base = 'colossalai', " + two_units).refused(),
             ContainsSubstring("`units` cannot be combined with `colossalai`, which makes units of its own: use fsdp "
                               "or zero as base"));
  // Frozen parameters may be left out.
  CHECK(units("{{" + most + "}}").refused(2, {"model.frozen=head.norm.*"}).empty());
}

TEST_CASE("`reduce` of an extension makes memory and traffic unknown unless the file has functions for them", "[lua]") {
  const std::string reduce = "reduce = function() end";
  Plan plan = Extension("base = 'fsdp', " + reduce).plan();
  CHECK(plan.to_json().at("memory_bytes_per_rank").is_null());
  CHECK(plan.to_json().at("traffic").is_null());
  const auto made = plan.entry->plan(plan.job);
  CHECK(made.own_reducer);
  CHECK_FALSE(made.reduce_every_micro_batch);
  CHECK(std::ranges::find(plan.notes, "gradients are summed by `reduce` of " + plan.recipe.strategy.name.substr(4) +
                                          ": options of `fsdp` for their sum have no effect") != plan.notes.end());
  plan = Extension(
             "base = 'fsdp', memory = function() return 7 end, traffic = function(job) return {{collective = "
             "'reduce_scatter', calls = #job.buckets, bytes = 640}} end, " +
             reduce)
             .plan();
  CHECK(plan.memory.total() > 0);
  const auto sums = std::ranges::find(plan.traffic, "reduce_scatter", &Traffic::collective);
  REQUIRE(sums != plan.traffic.end());
  CHECK(sums->payload_bytes == 640);
  CHECK(sums->calls == std::ssize(made.units));
}

TEST_CASE("what an extension's `memory` and `traffic` return is added to its base's", "[lua]") {
  const Plan base = built_in("name = \"fsdp\"\n", 2);
  const Plan plan = Extension(
                        "base = 'fsdp', after_update = function() end, memory = function() return 4096 end, "
                        "traffic = function() return {{collective = 'broadcast', calls = 1, bytes = 64}} end")
                        .plan();
  CHECK(plan.memory.total() == base.memory.total() + 4096);
  CHECK(plan.traffic.size() == base.traffic.size() + 1);
  CHECK(plan.traffic.back().collective == "broadcast");
  const Plan silent = Extension("base = 'fsdp', after_update = function() end").plan();
  CHECK(silent.traffic.size() == base.traffic.size());
  CHECK_THAT(silent.notes.back(), ContainsSubstring("the predicted traffic is that of `fsdp`: ") &&
                                      ContainsSubstring("has no function `traffic` for what its `after_update` sends"));
}

TEST_CASE("bases whose sums cannot be replaced refuse `reduce` with the reason", "[lua]") {
  const auto refused = [](const std::string& fields, const std::string& what, int ranks = 4,
                          const std::vector<std::string>& overrides = {}) {
    INFO(fields);
    CHECK_THAT(Extension(fields + ", reduce = function() end").refused(ranks, overrides), ContainsSubstring(what));
  };
  refused("base = 'bagua', options = {algorithm = 'bytegrad'}",
          "`reduce` cannot replace the reduction of `bagua`, which is `bytegrad` already: use one of them");
  refused("base = 'ddp', options = {ddp_comm_hook = 'powerSGD_hook'}",
          "`reduce` cannot replace the reduction of `ddp`, which is `powerSGD_hook` already");
  refused("base = 'fsdp', options = {sharding_strategy = 'HYBRID_SHARD', hybrid_group_size = 2}",
          "`reduce` is one sum, and `fsdp` makes two here, over 2 shards and over 2 copies: shard over all ranks, or "
          "over none");
  refused("base = 'ddp'", "reduces gradients of complete parameters, so it cannot be combined with a tensor axis", 4,
          {"devices.mesh={tensor=2}"});
  refused("base = 'ddp'",
          "`reduce` of mine.lua needs all blocks of the model on each rank, so it cannot be combined with a pipeline",
          4, {"devices.mesh={pipeline=2}"});
  CHECK_THAT(Extension("base = 'fsdp', replicas_differ = true").refused(),
             ContainsSubstring("`replicas_differ` needs a complete replica on each rank, and `fsdp` shards over 2 "
                               "ranks: use ddp as base"));
  for (const std::string axis : {"tensor", "context", "pipeline"})
    CHECK_THAT(Extension("base = 'ddp', replicas_differ = true").refused(4, {"devices.mesh={" + axis + "=2}"}),
               ContainsSubstring("`replicas_differ` needs a complete replica on each rank, and a " + axis +
                                 " axis divides it over 2 ranks"));
  // Without functions that need the model, the axes of the base are those of the extension.
  for (const char* mesh : {"devices.mesh={tensor=2}", "devices.mesh={pipeline=2}", "devices.mesh={context=2}"})
    CHECK(Extension("base = 'ddp'").refused(4, {mesh}).empty());
}

TEST_CASE("optimizers that need the built-in sum, or equal replicas, are refused with a strategy in Lua", "[lua]") {
  const std::string adascale = "[optimizer]\nname = \"sgd\"\nadascale = true\n";
  const std::string wants_sum =
      "optimizer.adascale needs gradients that are summed over ranks, and a comm hook or a strategy in Lua replaces "
      "that sum";
  const std::string reduce = "reduce = function() end";
  CHECK_THAT(Extension(reduce, "", adascale).refused(), ContainsSubstring(wants_sum));
  CHECK_THAT(Extension("base = 'ddp', " + reduce, "", adascale).refused(), ContainsSubstring(wants_sum));
  CHECK(Extension("base = 'ddp', after_update = function() end", "", adascale).refused().empty());
  const std::string average = "[optimizer]\nname = \"schedule_free_adamw\"\n";
  const std::string wants_replicas =
      "evaluates an average that follows from its state, and with `replicas_differ` each rank has state of its own";
  for (const std::string base : {"", "base = 'ddp', "}) {
    INFO(base);
    CHECK_THAT(Extension(base + "replicas_differ = true, after_update = function() end", "", average).refused(),
               ContainsSubstring(wants_replicas));
    CHECK(Extension(base + reduce, "", average).refused().empty());
  }
}

TEST_CASE("a value in a file fills a required option of the base, and decides what the planner tries", "[lua]") {
  CHECK_THAT(Extension("base = 'hivemind'").wrong(), ContainsSubstring("needs `target_batch_size`"));
  CHECK(Extension("base = 'hivemind', options = {target_batch_size = 64}").wrong().empty());
  const Plan plan = Extension("base = 'colossalai', options = {placement_policy = 'cpu'}").plan();
  CHECK(plan.recipe.strategy.options.at("placement_policy") == "cpu");
}

TEST_CASE("`setup_optimizer` changes groups, which are checked like those of a recipe", "[lua]") {
  const std::string recipe =
      "[optimizer]\nlr = 0.01\nweight_decay = 0.1\n[[optimizer.groups]]\npattern = \"*.bias\"\nweight_decay = 0.0\n";
  const auto place = [&](const std::string& body) {
    return Extension(
        "base = 'ddp', options = {factor = {type = 'number', default = 2}}, setup_optimizer = "
        "function(groups, options) " +
            body + " end",
        "", recipe);
  };
  const auto optimizer = [&](const std::string& body) {
    const Plan plan = place(body).plan();
    return with_script_optimizer(plan.recipe, *plan.entry, plan.job.options, *plan.model).optimizer;
  };
  auto made = optimizer(
      "assert(#groups == 2 and groups[1].params[1] == '*.bias' and groups[1].weight_decay == 0)\n"
      "assert(groups[2].params == nil and groups[2].betas[2] == 0.999)\n"
      "groups[2].lr = groups[2].lr * options.factor; groups[2].betas = {0.8, 0.9}; groups[2].weight_decay = 0.3\n"
      "groups[1].lr_factor = 0.5\n"
      "table.insert(groups, 1, {params = {'head*'}, lr = 0.5})");
  CHECK(made.lr == 0.02);
  CHECK(made.weight_decay == 0.3);
  CHECK(made.betas == std::vector{0.8, 0.9});
  REQUIRE(made.groups.size() == 2);
  CHECK(made.groups[0].patterns() == std::vector<std::string>{"head*"});
  CHECK(made.groups[0].lr == 0.5);
  CHECK(made.groups[1].lr_factor == 0.5);
  CHECK(made.groups[1].weight_decay == 0.0);
  CHECK(optimizer("return {{lr = 0.5}}").groups.empty());

  const auto refused = [&](const std::string& body, const std::string& what) {
    INFO(body);
    CHECK_THAT(place(body).refused(), ContainsSubstring("recipe.toml:2:8: error: `setup_optimizer`: " + what));
  };
  refused("groups[2].wieght_decay = 1",
          "the group of all other parameters has no `wieght_decay`; adamw has lr, weight_decay, betas, eps");
  refused("groups[2].momentum = 0.5", "the group of all other parameters has no `momentum`");
  refused("groups[2].lr = -1", "in the group of all other parameters, `lr` must be at least 0, not -1");
  refused("groups[1].lrr = 1", "");
  refused("groups[1].params = {'nothing.*'}", "no parameter matches the pattern `nothing.*` of optimizer.groups");
  refused("groups[1].name = 'sgd'",
          "`name` of `blocks.0.attention_norm.bias`'s optimizer was \"adamw\", and became \"sgd\": a recipe sets");
  refused("return 7",
          "the result must be a list of groups, one of them without `params`, for all other parameters; "
          "not 7");
  refused("groups[2] = nil", "the result must be a list of groups, one of them without `params`");
  CHECK_THAT(place("return groups.x.y").refused(), ContainsSubstring("failed in setup_optimizer: "));
  CHECK_THAT(Extension("base = 'ddp', setup_optimizer = function(groups) groups[1].nesterov = true end", "",
                       "[optimizer]\nname = \"sgd\"\nmomentum = 0.0\n")
                 .refused(),
             ContainsSubstring("error: `setup_optimizer`: nesterov = true needs momentum above 0"));
  CHECK_THAT(Extension("base = 'ddp', setup_optimizer = function(groups) groups[1].momentum = 0.5 end", "",
                       "[optimizer]\nname = \"sgd\"\nmomentum = 0.9\n[[optimizer.groups]]\npattern = \"*.bias\"\nlr = "
                       "0.1\n")
                 .refused(),
             ContainsSubstring("error: `setup_optimizer`: `momentum` of `blocks.0.attention_norm.bias`'s optimizer was "
                               "0.9, and became 0.5: a recipe sets"));
  const auto with_betas = [&](const std::string& base) {
    return Extension(base + ", setup_optimizer = function(groups) groups[1].betas = {0.8, 0.9} end", "", recipe);
  };
  CHECK(with_betas("base = 'fsdp'").plan().job.group_optimizers.size() == 1);
  CHECK_THAT(with_betas("base = 'bagua', options = {algorithm = 'qadam', warmup_steps = 2}")
                 .refused(2, {"optimizer.name=adam"}),
             ContainsSubstring("algorithm = \"qadam\" reduces moments of all parameters by one rule"));
  if (find_strategy("xla_fsdp")->entry->unavailable.empty())
    CHECK_THAT(with_betas("base = 'xla_fsdp'").refused(),
               ContainsSubstring("a compiled step updates all parameters by one rule"));
}

TEST_CASE("a registry can replace and remove built-in names, for its recipe only", "[lua]") {
  RecipePlace place("[strategy]\nname = \"fsdp\"\nregistry = \"mine.lua\"\n");
  place.write("mine.lua",
              "strategies.override('fsdp', {base = 'fsdp', options = {sharding_strategy = 'SHARD_GRAD_OP'}}, 'Ours.')\n"
              "strategies.remove('ddp')\n");
  Plan plan = make_plan(place.load(), cpus(2), 256);
  CHECK(plan.entry->summary == "Ours.");
  CHECK(plan.recipe.strategy.options.at("sharding_strategy") == "SHARD_GRAD_OP");
  CHECK_THAT(place.wrong({"strategy.name=ddp"}), ContainsSubstring("the strategy `ddp` is removed by ") &&
                                                     ContainsSubstring("mine.lua (strategy.registry)"));
  const auto automatic = place.wrong({"strategy.name=auto"});
  for (const char* change : {"mine.lua replaces `fsdp`", "mine.lua removes `ddp`"})
    CHECK_THAT(automatic, ContainsSubstring("strategy.name = \"auto\" chooses among the built-in strategies, and ") &&
                              ContainsSubstring(change) &&
                              ContainsSubstring(": name a strategy, or remove strategy.registry"));
  CHECK_THAT(place.wrong({"strategy.name=auto", "strategy.registry=nowhere.lua"}),
             ContainsSubstring("error: the strategy file ") && ContainsSubstring("nowhere.lua does not exist"));
  plan = built_in("name = \"fsdp\"\n", 2);
  CHECK(plan.entry->summary != "Ours.");
  CHECK(plan.entry == find_strategy("fsdp")->entry);
  CHECK(built_in("name = \"ddp\"\n", 2).entry->name == "ddp");
}
