// Files of strategies and comm hooks, and the registry: allowed contents, and diagnostics of mistakes.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/lua/strategy_file.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace runner::lua;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

/// A folder with Lua files, and the diagnostics of loading a strategy from it.
struct Place {
  TemporaryFolder folder;
  State state;
  std::vector<Diagnostic> diagnostics;
  RegisteredNames names;

  std::string write(const std::string& name, const std::string& text) {
    auto path = folder.path / name;
    write_file_atomic(path, text);
    return path.string();
  }
  Origin line(int number) const {
    Origin origin;
    origin.kind = Origin::Kind::file;
    origin.file = "recipe.toml";
    origin.line = number;
    origin.column = 8;
    return origin;
  }
  std::optional<StrategyFile> load(const std::string& name, const std::string& registry = "") {
    diagnostics.clear();
    StrategyRequest request{name, line(3), registry, line(4), {{"ddp", "Replicates.", {"bucket_cap_mb"}}, {"fsdp"}}};
    return load_strategy_file(state, request, diagnostics, &names);
  }
  /// The diagnostics of a strategy with this text; "" if there are none.
  std::string wrong(const std::string& text) {
    auto path = write("mine.lua", text);
    auto file = load("lua:" + path);
    CHECK(file.has_value() == diagnostics.empty());
    return said();
  }
  std::string said() const {
    std::string all;
    for (const auto& diagnostic : diagnostics) all += render(diagnostic);
    for (size_t at; (at = all.find(folder.path.string() + "/")) != std::string::npos;)
      all.erase(at, folder.path.string().size() + 1);
    return all;
  }
  /// The diagnostics of a registry file with this text.
  std::string registry(const std::string& text) {
    load("none", write("strategies.lua", text));
    return said();
  }
};

}  // namespace

TEST_CASE("a strategy's file is a table of functions, typed options and the strategy's fields") {
  Place place;
  auto path = place.write("mine.lua", R"(return {
    about = "Mine.", options = {every = {type = "integer", default = 3, min = 1}}, replicas_differ = true,
    setup = function() end, after_update = function() end,
  })");
  auto file = place.load("lua:" + path);
  REQUIRE(file);
  CHECK(file->name == "mine");
  CHECK(file->about == "Mine.");
  CHECK(file->replicas_differ);
  CHECK(find_option(file->options, "every")->default_value == 3);
  CHECK(file->functions.size() == 2);
  CHECK(place.load("lua:ddp")->functions.contains("reduce"));
}

TEST_CASE("mistakes in a strategy's file are reported with their place, and the place in the recipe") {
  Place place;
  CHECK_THAT(
      place.wrong("return {\n  reduse = function() end}"),
      ContainsSubstring("mine.lua:2:1: error: `reduse` is not part of a strategy, so it would never be called") &&
          ContainsSubstring("did you mean `reduce`?") && ContainsSubstring("recipe.toml:3:8") &&
          ContainsSubstring("the file is named here"));
  CHECK_THAT(place.wrong("return 7"),
             ContainsSubstring("a strategy file returns a table of its functions, not a number"));
  CHECK_THAT(place.wrong("return {\n reduce = }"),
             ContainsSubstring("mine.lua:2:1: error: unexpected symbol near '}'"));
  CHECK_THAT(place.wrong("return {reduce = 3}"), ContainsSubstring("`reduce` must be a function, not a number"));
  CHECK_THAT(
      place.wrong("return {setup = function() end}"),
      ContainsSubstring("without a function `reduce`, ranks train on different gradients: set `replicas_differ = "
                        "true`"));
  CHECK_THAT(place.wrong("return {reduce = function() end, replicas_differ = 'no'}"),
             ContainsSubstring("`replicas_differ` must be true or false, not a string"));
  CHECK_THAT(place.wrong("return {reduce = function() end, shard = function() end, replicas_differ = true}"),
             ContainsSubstring("`shard` needs equal replicas"));
  CHECK_THAT(place.wrong("return {reduce = function() end, options = {every = {type = 'whole'}}}"),
             ContainsSubstring("option `every`: `type` must be one of number, integer, boolean, string, list"));
  CHECK_THAT(place.wrong("while true do end"), ContainsSubstring("took more than "));  // 50000000 instructions, or 1 s
  place.load("lua:" + (place.folder.path / "mime.lua").string());
  CHECK_THAT(place.said(), ContainsSubstring("recipe.toml:3:8: error: the strategy file mime.lua does not exist") &&
                               ContainsSubstring("did you mean `mine.lua`?"));
  place.load("lua:local_sdg");
  CHECK_THAT(place.said(), ContainsSubstring("there is no shipped strategy \"local_sdg\"; a file of your own ends in "
                                             ".lua") &&
                               ContainsSubstring("did you mean `local_sgd`?"));
}

TEST_CASE("a comm hook has only setup and reduce of a strategy") {
  Place place;
  std::vector<Diagnostic> diagnostics;
  CHECK(load_comm_hook_file(place.state, "lua:topk", {}, diagnostics));
  CHECK(diagnostics.empty());
  auto path = place.write("hook.lua", "return {setup = function() end}");
  CHECK_FALSE(load_comm_hook_file(place.state, "lua:" + path, {}, diagnostics));
  CHECK(diagnostics.at(0).message == "a comm hook needs a function `reduce`");
  CHECK_FALSE(load_comm_hook_file(place.state, "lua:gossip", {}, diagnostics));
  CHECK_THAT(diagnostics.at(1).message, ContainsSubstring("`after_update` is not part of a comm hook"));
}

TEST_CASE("register, get, available_strategies and remove work on the registry") {
  Place place;
  place.write("mine.lua", "return {about = 'From a file.', reduce = function() end}");
  auto registry = place.write("strategies.lua", R"(
    strategies.register("mine", require "mine")
    strategies.register("averaged", strategies.get("lua:local_sgd"), "Averages now and then")
    strategies.register("gone", {reduce = function() end})
    assert(strategies.get("gone").reduce)
    assert(table.concat(strategies.available_strategies(), " ") == "averaged ddp fsdp gone mine")
    strategies.remove("gone")
    assert(table.concat(strategies.available_strategies(), " ") == "averaged ddp fsdp mine")
    assert(strategies.get("ddp").name == "ddp" and strategies.get("DDP").base == "ddp")
    assert(next(strategies.get("ddp").options) == nil)
  )");
  auto mine = place.load("mine", registry);
  REQUIRE(place.said().empty());
  REQUIRE(mine);
  CHECK(mine->name == "mine");
  CHECK(mine->about == "From a file.");
  CHECK(place.names.registered == std::vector<std::string>{"averaged", "mine"});
  auto averaged = place.load("averaged", registry);
  REQUIRE(averaged);
  CHECK(averaged->about == "Averages now and then");
  CHECK(averaged->replicas_differ);
  CHECK(find_option(averaged->options, "every"));
  CHECK_FALSE(place.load("gone", registry));
  CHECK(place.diagnostics.empty());
}

TEST_CASE("mistakes in a registry's file are reported with their line") {
  Place place;
  auto says = [&](const std::string& line, const std::string& what) {
    INFO(line);
    CHECK_THAT(place.registry("\n" + line), ContainsSubstring("strategies.lua:2:1: error: " + what));
  };
  says("strategies.register('ddp', {})", "register: `ddp` is built in; `override` replaces it");
  says("strategies.register('auto', {})", "register: `auto` is not the name of a strategy: it chooses one");
  says("strategies.register('a b', {})", "register: \"a b\" is not a name: letters, digits, _ and - only");
  says("strategies.register('a', {}) strategies.register('a', {})",
       "register: `a` is registered already; `override` replaces it");
  says("strategies.register('a', 'topk.lua')", "register: argument 2 must be the table of a strategy, not a string");
  says("strategies.get('fdsp')", "get: there is no strategy `fdsp`; did you mean `fsdp`?");
  says("strategies.get('lua:nothing')", "get: there is no shipped strategy \"nothing\"");
  says("strategies.override('fdsp', {})", "override: there is no strategy `fdsp`; did you mean `fsdp`?");
  says("strategies.override('fsdp', 'mine.lua')", "override: argument 2 must be the table of a strategy, not a string");
  says("strategies.describe('ddd')", "describe: there is no strategy `ddd`; did you mean `ddp`?");
  says("strategies.remove('ddp') strategies.get('ddp')", "get: there is no strategy `ddp`");
  says("strategies.remove('x')", "remove: there is no strategy `x`");
  auto broken = place.write("strategies.lua", "strategies.register('mine', {reduse = function() end})");
  CHECK_FALSE(place.load("mine", broken));
  CHECK_THAT(place.said(), ContainsSubstring("did you mean `reduce`?"));
  CHECK_FALSE(place.load("mine", "nowhere.lua"));
  CHECK_THAT(place.said(), ContainsSubstring("recipe.toml:4:8: error: the strategy file nowhere.lua does not exist"));
}

TEST_CASE("override, describe, get and remove work for built-in strategies, too") {
  Place place;
  auto registry = place.write("strategies.lua", R"(
    local mine = strategies.get("ddp")
    mine.after_update = function() end
    mine.options.every = {type = "integer", default = 2}
    strategies.register("mine", mine, "As ddp.")
    local about = strategies.describe("ddp")
    assert(about.kind == "built-in" and about.about == "Replicates." and about.options[1] == "bucket_cap_mb")
    about = strategies.describe("mine")
    assert(about.kind == "Lua" and about.about == "As ddp." and about.base == "ddp" and about.options[1] == "every")
    strategies.override("FSDP", {base = "fsdp", about = "With more.", after_update = function() end})
    assert(strategies.describe("fsdp").kind == "Lua" and strategies.get("fsdp").about == "With more.")
    assert(table.concat(strategies.available_strategies(), " ") == "ddp fsdp mine")
    strategies.override("mine", {base = "fsdp"}, "As fsdp.")
    strategies.remove("ddp")
    assert(table.concat(strategies.available_strategies(), " ") == "fsdp mine")
  )");
  auto mine = place.load("mine", registry);
  INFO(place.said());
  REQUIRE(mine);
  CHECK(mine->base == "fsdp");
  CHECK(mine->about == "As fsdp.");
  for (const char* name : {"fsdp", "FSDP"}) CHECK(place.load(name, registry)->about == "With more.");
  CHECK(place.names.registered == std::vector<std::string>{"fsdp", "mine"});
  CHECK(place.names.removed == std::vector<std::string>{"ddp"});
  CHECK_FALSE(place.load("ddp", registry));
  CHECK(place.diagnostics.empty());
}

TEST_CASE("a file with a base gives values for its options, and describes new ones") {
  Place place;
  auto path = place.write("mine.lua", R"(return {
    base = "fsdp",
    options = {sharding_strategy = "SHARD_GRAD_OP", mixed_precision = {param_dtype = "float32"},
               every = {type = "integer", default = 3}},
    units = function() end, setup_module = function() end, setup_optimizer = function() end,
  })");
  auto file = place.load("lua:" + path);
  INFO(place.said());
  REQUIRE(file);
  CHECK(file->base == "fsdp");
  CHECK_FALSE(file->reduces());
  CHECK(file->base_options ==
        json{{"sharding_strategy", "SHARD_GRAD_OP"}, {"mixed_precision", {{"param_dtype", "float32"}}}});
  CHECK(file->options.size() == 1);
  auto says = [&](const std::string& text, const std::string& message) {
    CHECK_THAT(place.wrong("return {" + text + "}"), ContainsSubstring("error: " + message));
  };
  says("base = 3", "`base` must be the name of a built-in strategy such as \"fsdp\", not a number");
  says("base = 'fdsp'", "base = \"fdsp\": there is no built-in strategy of that name; did you mean \"fsdp\"?");
  says("base = 'lua:topk'",
       "base = \"lua:topk\": only built-in strategies can be extended, because the plan of a "
       "strategy in Lua is made by its own functions; take over those functions: `local other = "
       "require \"FILE\"`, or strategies.get(\"lua:topk\") in a registry");
  says("base = 'fsdp', shard = function() end",
       "`shard` is for strategies without a `base`: with base = \"fsdp\", the plan of `fsdp` says what is sharded");
  says("units = function() end, reduce = function() end",
       "`units` needs a `base`, such as base = \"ddp\": without one, buckets follow bucket_cap_mb");
  says("base = 'fsdp', options = {every = 3, more = {type = 'whole'}}", "option `more`: `type` must be one of");
}

TEST_CASE("what a strategy asks of its objects must exist, also in a branch that never runs") {
  Place place;
  const auto says = [&](const std::string& fields, const std::string& message) {
    CHECK_THAT(place.wrong("return {base = 'fsdp', " + fields + "}"),
               ContainsSubstring(message) && ContainsSubstring("the file is named here"));
  };
  says("setup_module = function(model)\n model:paramter('x') end",
       "mine.lua:2:8: error: a model has no `paramter`; it has parameter, parameter_names\n");
  says("after_update = function(ctx)\n\n if ctx.step == 4000 then ctx.world:all_redcue() end end",
       "mine.lua:3:37: error: a world has no `all_redcue`; it has ");
  says("reduce = function(bucket) return function() bucket.gradients:scael_(2) end end", "did you mean `scale_`?");
  says("reduce = function(bucket, ctx) local n = bucket.shard.size end", "a tensor has no `size`");
  CHECK(place
            .wrong(
                "return {base = 'fsdp', after_update = function(ctx) local x = ctx.model:parameter('a') * 2\n"
                "for _, b in ipairs(ctx.buckets) do ctx.world:group('node'):barrier('x') b.parameters:clone() end end}")
            .empty());
  for (const auto& [name, text] : shipped_strategies()) {
    INFO(name);
    CHECK(place.load("lua:" + name));
    CHECK(place.said().empty());
  }
}
