// The metrics that a recipe can record, and the mistakes of its hooks that their code shows.
#include <catch2/catch_test_macros.hpp>
#include <lua.hpp>
#include <memory>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/lua/bytecode.hpp"
#include "runner/lua/known_metrics.hpp"
#include "runner/lua/state.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace runner::lua;

namespace {

/// A recipe with one hook file, hook.lua.
struct Hook {
  TemporaryFolder folder;
  Recipe recipe;
  explicit Hook(const std::string& text) {
    write_file_atomic(folder.path / "hook.lua", text);
    recipe.hooks.files = {(folder.path / "hook.lua").string()};
  }
  /// The mistake that is known, without the folder.
  std::string mistake() const {
    auto text = known_metrics(recipe).mistake;
    const auto prefix = folder.path.string() + "/";
    return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
  }
};

}  // namespace

TEST_CASE("the metrics that a recipe can record are known without training") {
  using enum KnownMetrics::Recorded;
  Recipe recipe;
  recipe.data.validation_fraction = 0.1;
  CHECK(known_metrics(recipe).recorded("val_loss") == yes);
  CHECK(known_metrics(recipe).recorded("grad_norm") == yes);
  CHECK(known_metrics(recipe).recorded("accuracy") == no);
  recipe.data.validation_fraction.reset();
  CHECK(known_metrics(recipe).recorded("val_loss") == no);

  Hook hook(
      "return {on_train_batch_end = function(ctx) ctx:log('norm/' .. ctx.step, 1)"
      " if ctx.step > 99 then ctx:log('late', 1) end end}");
  auto known = known_metrics(hook.recipe);
  for (const char* name : {"norm/1", "norm/blocks.7", "late", "loss"}) CHECK(known.recorded(name) == yes);
  for (const char* name : {"norms", "early"}) CHECK(known.recorded(name) == maybe);
  CHECK(known.recorded("val_loss") == no);  // a hook cannot log it
  Hook plain("return {on_train_batch_end = function(ctx) if ctx.step > 99 then ctx:log('late', 1) end end}");
  CHECK(known_metrics(plain.recipe).recorded("late") == yes);
  CHECK(known_metrics(plain.recipe).recorded("early") == no);
  Hook constant(
      "local kinds = {'early_stop'}\n"
      "return {on_train_end = function(ctx) ctx:log('norm/head', #kinds) end}");
  CHECK(known_metrics(constant.recipe).recorded("norm/blocks.7") == yes);  // the beginning of a name that it logs
  CHECK(known_metrics(constant.recipe).recorded("early_bird") == no);      // that of another string
  Hook trusted("return {}");
  trusted.recipe.hooks.trusted = true;
  CHECK(known_metrics(trusted.recipe).recorded("anything") == maybe);
}

TEST_CASE("the names that a hook logs are read from its code") {
  State state;
  const auto logged = [&](const std::string& text) {
    return read_bytecode(state.bytecode_of(text, "hook.lua")).logged();
  };
  for (const char* text :
       {"ctx:log('a', 1)", "ctx : log ( \"a\" , 1)", "ctx:log [[a]]", "ctx:log('\\x61', math.log(2))",
        "function f(c) if c.step > 9 then c:log('a', c.step .. 'x') end end"}) {
    INFO(text);
    CHECK(logged(text).complete);
    REQUIRE(logged(text).names.size() == 1);
    CHECK(logged(text).names.front().name == "a");
  }
  for (const char* text :
       {"local x = math.log(2)", "logs = catalog(2)", "", "-- ctx:log(name)", "self.log_every = 1"}) {
    INFO(text);
    CHECK((logged(text).complete && logged(text).names.empty()));
  }
  std::string many_constants = "local words = {";
  for (int i = 0; i < 300; ++i) many_constants += fmt::format("'w{}', ", i);
  for (const std::string& text :
       std::vector<std::string>{"ctx:log('a' .. i, 1)", "ctx:log(name, 1)", "ctx:log(('%d'):format(i), 1)",
                                "ctx:log(i and 'a' or 'b', 1)", "ctx.log(ctx, name, 1)", "ctx['log'](ctx, name, 1)",
                                "require 'names'", "ctx:log('a', 1) ctx:log(b, 1)", "load('c:log(n, 1)')()",
                                "local m = 'log' ctx[m](ctx, 'x' .. i, 1)", many_constants + "} ctx:log(name, 1)"}) {
    INFO(text);
    CHECK_FALSE(logged(text).complete);
  }
}

TEST_CASE("a name that only another object may log is no mistake of a hook") {
  for (const char* text :
       {"local out = {log = function() end}\nreturn {on_train_end = function(ctx) out:log('loss', 1) end}",
        "return {on_train_end = function(ctx) local file = ctx.world file:log('loss', 1) end}",
        "return {on_train_end = function(ctx) ctx = wrap(ctx) ctx:log('loss', 1) end}",
        "local Out = {}\nfunction Out:log() end\nfunction Out:both() self:log('loss', 1) end\nreturn {}"}) {
    INFO(text);
    CHECK(Hook(text).mistake().empty());
  }
  CHECK(Hook("return {on_train_end = function(ctx)\n  ctx:log('loss', 1) end}")
            .mistake()
            .starts_with("hook.lua:2: log: the trainer itself records a metric named \"loss\""));
}

TEST_CASE("a hook that generates text is a known mistake if the data are tokens") {
  Hook hook("return {on_validation_end = function(ctx)\n  ctx:generate{max_new_tokens = 8, prompt = 'The'} end}");
  Hook of_tokens("return {on_validation_end = function(ctx) ctx:generate{prompt = {1, 2}} end}");
  CHECK(hook.mistake().empty());
  hook.recipe.data.format = of_tokens.recipe.data.format = "bin";
  CHECK(hook.mistake().starts_with("hook.lua:2: generate: data.format = \"bin\" has no tokenizer"));
  CHECK(of_tokens.mistake().empty());
  hook.recipe.hooks.files = {"sample_generation"};
  CHECK(hook.mistake().starts_with("sample_generation: generate: data.format = \"bin\" has no tokenizer"));
  hook.recipe.data.format = "text";
  CHECK(hook.mistake().empty());
}

TEST_CASE("names are read from bytecode without debug information; their line is 0") {
  const std::unique_ptr<lua_State, decltype(&lua_close)> lua(luaL_newstate(), lua_close);
  REQUIRE(luaL_loadstring(lua.get(), "local c = ...\nc:log('a', c.step)") == LUA_OK);
  std::string dump;
  const auto append = [](lua_State*, const void* piece, size_t size, void* out) {
    static_cast<std::string*>(out)->append(static_cast<const char*>(piece), size);
    return 0;
  };
  REQUIRE(lua_dump(lua.get(), append, &dump, /*strip=*/1) == 0);
  const auto logged = read_bytecode(dump).logged();
  REQUIRE(logged.names.size() == 1);
  CHECK(logged.names.front().name == "a");
  CHECK(logged.names.front().line == 0);
}
