// Lua in the built `runner`: lua check, init --lua, and recipes in Lua for all commands.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("runner lua check rejects the same files as a run") {
  Workplace place;
  place.write("c.lua", "return {on_train_batch_end = function(ctx) ctx:log('loss', 1) end}");
  auto result = place.run({"lua", "check", "c.lua"});
  CHECK(result.code == 1);
  CHECK_THAT(result.err, ContainsSubstring("log: the trainer itself records a metric named \"loss\""));
  CHECK_THAT(result.err, !ContainsSubstring("is fine"));
  place.write("norms.lua", "return {options = {every = {type = 'integer', default = 5, min = 1}}}");
  write_tiny_recipe(place, "[hooks.norms]\nevery = 0\n[hooks]\nfiles = [\"norms.lua\"]\n");
  result = place.run({"lua", "check", "norms.lua", "--recipe", "tiny.toml"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring("error: `every` must be at least 1, not 0 (an option of the hook norms)"));
}

TEST_CASE("runner lua check refuses other files and verbs") {
  Workplace place;
  place.write("hook.lua", "return {}");
  write_tiny_recipe(place);
  CHECK_THAT(place.run({"lua", "check", "tiny.toml"}).err,
             ContainsSubstring("tiny.toml: error: this looks like a TOML recipe, not like a Lua file; check it with: "
                               "runner check tiny.toml"));
  CHECK_THAT(place.run({"lua", "chek", "hook.lua"}).err,
             ContainsSubstring("verb cannot be `chek`: did you mean `check`?"));
}

TEST_CASE("the names that a script asks of its options are those that it declares") {
  Workplace place;
  const auto says = [&](const std::string& fields, const std::string& wanted) {
    place.write("mine.lua", "return {options = {every = {type = 'integer', default = 5}},\n" + fields + "}");
    const auto result = place.run({"lua", "check", "mine.lua"});
    INFO(result.err);
    CHECK(result.code == 2);
    CHECK_THAT(result.err, ContainsSubstring(wanted));
  };
  says("on_train_batch_end = function(ctx, state, options) if ctx.step % options.evry == 0 then print(1) end end",
       "mine.lua:2:74: error: the hook mine has no option `evry`; its `options` are every\n");
  says("on_train_batch_end = function(ctx, state, options) if ctx.step % options.evry == 0 then print(1) end end",
       "did you mean `every`?");
  says("loss = function(ctx, logits, targets, options) return logits:logsumexp() * options.weight end",
       "the hook mine has no option `weight`; its `options` are every\n");
  says("after_update = function(ctx, state, options) local n = options.evry end",
       "the strategy mine has no option `evry`");
  says("on_train_end = function(ctx, state, options) options.every = 2 end",
       "`every`: the options of the hook mine cannot be set");
}

TEST_CASE("a file in Lua that is no recipe is answered with its kind") {
  Workplace place;
  const auto says = [&](const std::string& verb, const std::string& functions, const std::string& wanted) {
    place.write("it.lua", "return {" + functions + "}");
    const auto result = place.run({verb, "it.lua"});
    INFO(result.err);
    CHECK(result.code == 2);
    CHECK_THAT(result.err, ContainsSubstring("error: this is no recipe: this looks like a " + wanted));
  };
  for (const char* verb : {"check", "run", "print", "recommend"})
    says(verb, "on_train_batch_end = function() end",
         "hook: `runner lua check it.lua` tries it, and hooks.files = [\"it.lua\"] in a recipe uses it");
  says("check", "setup = function() end, reduce = function() end",
       "strategy: `runner lua check it.lua` tries it, and strategy.name = \"lua:it.lua\" in a recipe uses it");
  says("check", "run = function() end", "sweep: `runner sweep run it.lua` runs it");
  says("check", "sample = function() end", "sample order: data.order = \"it.lua\" in a recipe uses it");
  says("check", "ranks = function() end", "cluster environment: plugins.cluster_environment = \"it.lua\"");
  says("check", "save = function() end, load = function() end", "checkpoint store: plugins.checkpoint_io = \"it.lua\"");
  place.write("it.lua", "return {recipe = 'a.toml', on_train_end = function() end}");
  CHECK_THAT(place.run({"sweep", "run", "it.lua"}).err,
             ContainsSubstring("`on_train_end` is a function; only `run` may be one; this looks like a hook: "));
}

TEST_CASE("runner lua check rejects a misspelt hook") {
  Workplace place;
  place.write("wrong.lua", "return {on_trian_end = function() end}");
  auto result = place.run({"lua", "check", "wrong.lua"});
  CHECK(result.code == 2);
  CHECK(result.err ==
        "wrong.lua:1:1: error: `on_trian_end` is not a hook, so it would never be called\n"
        "    1 | return {on_trian_end = function() end}\n"
        "      | ^\n"
        "  did you mean `on_train_end`?\n");
}

TEST_CASE("runner init --lua writes the editor's files, and does not overwrite them") {
  Workplace place;
  CHECK(place.run({"init", "--lua"}).code == 0);
  auto settings = nlohmann::json::parse(slurp(place.path() / ".luarc.json"));
  CHECK(settings["workspace.library"] == nlohmann::json::array({".luals"}));
  CHECK_THAT(slurp(place.path() / ".luals/runner.lua"), ContainsSubstring("---@class runner.Context"));
  CHECK_FALSE(fs::exists(place.path() / "recipe.toml"));
  CHECK(place.run({"init", "keep.toml", "--lua"}).code == 2);
  auto again = place.run({"init", "--lua"});
  CHECK(again.code == 2);
  CHECK_THAT(again.err, ContainsSubstring(".luarc.json exists already"));
}

TEST_CASE("every command accepts a recipe in Lua") {
  Workplace place;
  write_tiny_recipe(place);
  place.write("double.lua", "local base = extend 'tiny.toml'\nreturn {\n  model = {dim = 2 * base.model.dim},\n}\n");
  CHECK(place.run({"check", "double.lua"}).code == 0);
  auto printed = place.run({"print", "double.lua", "--origins"});
  CHECK_THAT(printed.out, ContainsSubstring("dim = 64  # double.lua:3:12\n"));
  CHECK_THAT(printed.out, ContainsSubstring("n_heads = 2  # tiny.toml:"));
  auto recommended = place.run({"recommend", "double.lua", "--json"});
  CHECK(recommended.code == 0);
  place.write("wrong.lua", "return {\n  model = {dims = 2},\n}\n");
  auto wrong = place.run({"check", "wrong.lua"});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, ContainsSubstring("wrong.lua:2:12: error: unknown key `dims` in [model]"));
}

TEST_CASE("a run of a recipe in Lua stores the source and the resulting recipe") {
  Workplace place;
  write_tiny_recipe(place);
  const std::string source = "extend 'tiny.toml'\nreturn {run = {name = 'from_lua'}, train = {max_steps = 2 + 1}}\n";
  place.write("made.lua", source);
  place.replace_worker("exit 0");
  place.run({"run", "made.lua", "--set", "devices=1"});
  auto shown = place.run({"show", "--json"}).json();
  CHECK(shown.at("name") == "from_lua");
  CHECK(shown.at("config").at("train").at("max_steps") == 3);
  CHECK(shown.at("origins").at("train.max_steps") == "made.lua:2:45");
  auto folder = fs::path(shown.at("run_dir").get<std::string>());
  CHECK_THAT(slurp(folder / "recipe.toml"), ContainsSubstring("max_steps = 3\n"));
  auto database = slurp(place.home() / "ledger.db") + slurp(place.home() / "ledger.db-wal");
  CHECK_THAT(database, ContainsSubstring(source));
}
