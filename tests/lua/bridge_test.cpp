// Conversions between C++ and Lua: plain data, registered functions, handles.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <cmath>

#include "runner/lua/state.hpp"

using namespace runner;
using namespace runner::lua;
using nlohmann::json;

namespace {

/// The error of converting the table that `text` returns.
std::string refused(const std::string& text) {
  State state;
  auto table = state.load_text(text, "a.lua").reference;
  try {
    return state.to_json(table, "recipe").dump();
  } catch (const ScriptMistake& mistake) {
    return mistake.what();
  }
}

std::string said(State& state, const std::string& text, const std::vector<Global>& globals) {
  try {
    state.load_text(text, "a.lua", {}, globals);
  } catch (const LuaError& error) {
    return error.what();
  }
  return "nothing";
}

struct Tensor {
  double value;
};

const Class& tensor_class() {
  static const Class kind = [] {
    Class made("tensor");
    made.property("value", [](Object& self) { return Value(self.as<Tensor>().value); });
    made.method("scale", [](const Arguments& arguments) {
      arguments.at_most(1);
      auto& tensor = arguments.as<Tensor>(0, tensor_class());
      tensor.value *= arguments.number(1);
      return Value();
    });
    made.operation("__add", [](const Arguments& arguments) {
      auto &a = arguments.as<Tensor>(1, tensor_class()), &b = arguments.as<Tensor>(2, tensor_class());
      return Value(Object::make(tensor_class(), Tensor{a.value + b.value}));
    });
    return made;
  }();
  return kind;
}

}  // namespace

TEST_CASE("plain data are unchanged after a round trip") {
  State state;
  json data = {{"list", {1, 2.5, "three", true, {{"deep", {1, 2}}}}},
               {"text", std::string("a\0b", 3)},
               {"big", int64_t{1} << 62},
               {"negative", -1.0}};
  CHECK(state.to_json(state.table(data), "data") == data);
  CHECK(state.to_json(state.read_only(data), "data") == data);
  auto fields = state.load_text("return {1, 2, x}", "a.lua", {}, {{"x", Value(state.read_only({{"a", 1}}))}}).reference;
  CHECK(state.to_json(fields, "t") == json({1, 2, {{"a", 1}}}));
}

TEST_CASE("read-only tables are read like others and cannot be changed") {
  State state;
  std::vector<Global> globals = {{"recipe", Value(state.read_only({{"model", {{"dim", 8}}}, {"tags", {"a", "b"}}}))}};
  CHECK(state
            .load_text("local n = 0; for k, v in pairs(recipe) do n = n + 1 end; for i, t in ipairs(recipe.tags) do n "
                       "= n + i end\n"
                       "return n * 100 + #recipe.tags * 10 + recipe.model.dim",
                       "a.lua", {}, globals)
            .plain == 528);
  CHECK(said(state, "recipe.model.dim = 4", globals) == "a.lua:1: this table is read-only: `dim` cannot be set");
  CHECK(said(state, "rawset(recipe, 'x', 1)", globals) == "a.lua:1: this table is read-only");
}

TEST_CASE("values that are not plain data are rejected with their path") {
  CHECK(refused("local t = {a = {}}; t.a.b = t; return t") == "recipe at a.b: the table contains itself");
  CHECK(refused("return {model = {[3.5] = 1}}") ==
        "recipe at model: 3.5 cannot be a key: keys are strings, or 1 to n for a list");
  CHECK(refused("return {model = {[true] = 1}}") ==
        "recipe at model: true cannot be a key: keys are strings, or 1 to n for a list");
  CHECK(refused("return {list = {1, 2, x = 3}}") == "recipe at list: both a list and a table with names (`x`)");
  CHECK(refused("return {list = {1, nil, 3}}") == "recipe at list[2]: a list with a hole");
  CHECK(refused("return {a = {1, {f = print}}}") == "recipe at a[2].f: a function is not plain data");
  CHECK(refused("return {a = coroutine.create(print)}") == "recipe at a: a thread is not plain data");
  CHECK(refused("return {a = {'caf\\xe9'}}") == "recipe at a[1]: \"caf\\xE9\" is not UTF-8 text");
  CHECK(refused("return {['caf\\xe9'] = 1}") == "recipe at caf\\xE9: this key is not UTF-8 text");
  CHECK(refused("local t = {}; for i = 1, 40 do t = {t} end; return t").ends_with(": nested deeper than 32 tables"));
  CHECK(refused("local t = {1}; for i = 1, 30 do t = {t, t} end; return t").ends_with(": too much data"));
  CHECK(refused("local shared = {1}; return {a = shared, b = shared}") == R"({"a":[1],"b":[1]})");
}

TEST_CASE("registered functions check their arguments with clear messages") {
  State state;
  std::vector<std::pair<std::string, double>> logged;
  std::vector<Global> globals = {{"log", {}, [&](const Arguments& arguments) {
                                    arguments.at_most(3);
                                    auto name = arguments.text(1);
                                    logged.emplace_back(name, arguments.number(2));
                                    return Value(arguments.integer(3, 7));
                                  }}};
  CHECK(state.load_text("return log('a', 1) + log('b', 2.5, 3)", "a.lua", {}, globals).plain == 10);
  CHECK(logged == decltype(logged){{"a", 1}, {"b", 2.5}});
  CHECK(said(state, "log('a', nil)", globals) == "a.lua:1: log: argument 2 must be a number, not nil");
  CHECK(said(state, "log('a')", globals) == "a.lua:1: log: argument 2 must be a number, not nothing");
  CHECK(said(state, "log(1, 2)", globals) == "a.lua:1: log: argument 1 must be a string, not a number");
  CHECK(said(state, "log('a', 1, 1.5)", globals) == "a.lua:1: log: argument 3 must be an integer, not 1.5");
  CHECK(said(state, "log('a', 1, 1, {})", globals) == "a.lua:1: log: takes at most 3 arguments, not 4");
  CHECK(state.load_text("return select(2, pcall(log, {}))", "a.lua", {}, globals).plain ==
        "log: argument 1 must be a string, not a table");
}

TEST_CASE("exceptions of the program pass through the script, even if it catches errors") {
  State state;
  std::vector<Global> globals = {
      {"all_reduce", {}, [](const Arguments&) -> Value { throw std::runtime_error("rank 3 is gone"); }}};
  bool went_on = false;
  globals.push_back({"went_on", {}, [&](const Arguments&) { return Value(went_on = true); }});
  CHECK_THROWS_WITH(state.load_text("while true do pcall(all_reduce) went_on() end", "a.lua", {}, globals),
                    "rank 3 is gone");
  CHECK_FALSE(went_on);
  CHECK(state.load_text("return 1", "a.lua").plain == 1);
}

TEST_CASE("objects have methods, properties and operators") {
  State state;
  auto object = Object::make(tensor_class(), Tensor{2});
  std::vector<Global> globals = {{"t", Value(object)}};
  CHECK(state.load_text("t:scale(3); return (t + t).value", "a.lua", {}, globals).plain == 12);
  CHECK(object->as<Tensor>().value == 6);
  CHECK(state.load_text("return t", "a.lua", {}, globals).object == object);
  CHECK(state.load_text("return tostring(t)", "a.lua", {}, globals).plain == "a tensor");
  CHECK(said(state, "t:scal(2)", globals) == "a.lua:1: a tensor has no `scal`; did you mean `scale`?");
  CHECK(said(state, "t.scale(2)", globals) ==
        "a.lua:1: scale: call it with a colon, object:scale(...), on a tensor, not on a number");
  CHECK(said(state, "t.value = 1", globals) == "a.lua:1: the fields of a tensor cannot be set");
  CHECK(said(state, "return t + 1", globals) == "a.lua:1: __add: argument 2 must be a tensor, not a number");
  CHECK(said(state, "getmetatable(t).__index = 1", globals) == "a.lua:1: attempt to index a boolean value");
  object->invalidate("it is a gradient of step 3; keep a clone()");
  CHECK(said(state, "return t.value", globals) ==
        "a.lua:1: this tensor is not valid any more: it is a gradient of step 3; keep a clone()");
}

TEST_CASE("handles release their objects when Lua collects them, or the state ends") {
  auto object = Object::make(tensor_class(), Tensor{1});
  {
    State state;
    state.load_text("kept = t", "a.lua", {}, {{"t", Value(object)}});
    CHECK(object.use_count() > 1);
  }
  CHECK(object.use_count() == 1);
  Reference outlives;
  {
    State state;
    outlives = state.load_text("return {}", "a.lua").reference;
  }
  CHECK(outlives.is_table());
}

TEST_CASE("a registered function may call back into Lua, within the same budget") {
  StateOptions options;
  options.limits.instructions = 50'000;
  State state(options);
  std::vector<Global> globals = {{"twice", {}, [&](const Arguments& arguments) {
                                    auto function = arguments.function(1);
                                    state.call(function);
                                    return state.call(function);
                                  }}};
  CHECK(state.load_text("local n = 0; return twice(function() n = n + 1; return n end)", "a.lua", {}, globals).plain ==
        2);
  CHECK(said(state, "while true do pcall(twice, function() while true do end end) end", globals)
            .starts_with("a.lua:1: took more than 50000"));
  CHECK(said(state, "twice(function() error('inner') end)", globals).starts_with("a.lua:1: a.lua:1: inner"));
}
