// Script functions that wait for the program and are resumed later.
#include <catch2/catch_test_macros.hpp>

#include "runner/lua/state.hpp"

using namespace runner;
using namespace runner::lua;
using nlohmann::json;

namespace {

/// `ask:number(x)` waits and passes x out. `ask:fail()` waits, if its body does not throw.
const Class& asking() {
  static const Class kind = [] {
    Class made("asker");
    made.waiting_method("number", [](const Arguments& arguments) { return Value(arguments.number(1)); });
    made.waiting_method("fail", [](const Arguments&) -> Value { throw ScriptMistake("fail: not today"); });
    return made;
  }();
  return kind;
}

struct Script {
  explicit Script(const std::string& body, const Limits& limits = {}) : state(options(limits)) {
    auto function = state.load_text("return function(ask)\n" + body + "\nend", "a.lua").reference;
    coroutine = state.coroutine(function);
  }
  static StateOptions options(const Limits& limits) {
    StateOptions options;
    options.limits = limits;
    return options;
  }
  State::Resumed begin() { return state.resume(coroutine, Value(Object::make(asking(), 0))); }
  State::Resumed answer(const json& value) { return state.resume(coroutine, Value(value)); }
  /// The error of the first resume.
  std::string said() {
    try {
      begin();
    } catch (const LuaError& error) {
      return error.what();
    }
    return "nothing";
  }

  State state;
  Reference coroutine;
};

}  // namespace

TEST_CASE("a method that waits passes its value out and returns the answer") {
  Script script("local sum = 0\nfor i = 1, 3 do sum = sum + ask:number(i) end\nreturn sum");
  auto asked = script.begin();
  for (int i = 1; i <= 3; ++i) {
    REQUIRE_FALSE(asked.ended);
    CHECK(asked.value.plain == i);
    asked = script.answer(10 * i);
  }
  CHECK(asked.ended);
  CHECK(asked.value.plain == 60);

  Script caught(
      "local ok, why = pcall(ask.fail, ask)\nlocal through = select(2, pcall(function() return ask:number(1) end))\n"
      "return why .. through");
  CHECK_FALSE(caught.begin().ended);
  CHECK(caught.answer("; answered").value.plain == "fail: not today; answered");

  Script own("local co = coroutine.wrap(function() coroutine.yield(4) coroutine.yield(5) end)\nreturn co() + co()");
  CHECK(own.begin().value.plain == 9);  // the script's coroutines work as usual
}

TEST_CASE("errors in a coroutine contain their place in it") {
  CHECK(Script("local function inner() return nil + 1 end\ninner()").said() ==
        "a.lua:2: attempt to perform arithmetic on a nil value\n  in function `inner`\n  called from a.lua:3");
  Script later("ask:number(1)\nerror('late')");
  later.begin();
  CHECK_THROWS_AS(later.answer(1), LuaError);
  CHECK(Script("ask:nmber(1)").said() == "a.lua:2: a asker has no `nmber`; did you mean `number`?");
}

TEST_CASE("only the driven coroutine itself may wait") {
  CHECK(Script("coroutine.yield(1)").said() ==
        "a.lua:2: coroutine.yield() works only inside of coroutines that the script made itself");
  CHECK(Script("coroutine.wrap(function() ask:number(1) end)()").said().starts_with("a.lua:2: "));
  CHECK(Script("error(select(2, coroutine.resume(coroutine.create(function() ask:number(1) end))), 0)").said() ==
        "a.lua:2: number: cannot wait inside of a coroutine that the script made itself");
  CHECK(Script("tostring(setmetatable({}, {__tostring = function() return ask:number(1) end}))")
            .said()
            .starts_with("a.lua:2: number: cannot wait inside of a function that a library calls"));
  State state;
  try {
    state.load_text("ask:number(1)", "a.lua", {}, {{"ask", Value(Object::make(asking(), 0)), {}}});
    FAIL("waited");
  } catch (const LuaError& error) {
    CHECK(error.message() == "number: cannot wait while the file is being read");
  }
}

TEST_CASE("a wrapped coroutine that has spent the budget runs none of its __close when it is called again") {
  StateOptions options;
  options.limits.instructions = 100'000;
  State state(options);
  const auto file = state.load_text(R"(
local wrapped = coroutine.wrap(function()
  local guard <close> = setmetatable({}, {__close = function() while true do end end})
  while true do end
end)
return {spend = function() wrapped() end, again = function() return select(2, pcall(wrapped)) end}
)",
                                    "a.lua");
  CHECK_THROWS_AS(state.call(state.field(file.reference, "spend").reference), LuaError);
  CHECK(state.call(state.field(file.reference, "again").reference).plain == "cannot resume dead coroutine");
}

TEST_CASE("each resume of a coroutine has full budgets, and pcall cannot catch their errors") {
  Limits limits{8u << 20, 200'000, 60};
  Script patient("for i = 1, 20 do for _ = 1, 20000 do end ask:number(i) end", limits);
  auto asked = patient.begin();
  for (int i = 0; i < 20; ++i) asked = patient.answer(1);
  CHECK(asked.ended);
  for (const char* body : {"while true do end", "while true do pcall(function() while true do end end) end",
                           "local t <close> = setmetatable({}, {__close = function() while true do end end})\n"
                           "while true do end"}) {
    INFO(body);
    Script endless(body, limits);
    try {
      endless.begin();
      FAIL("ended");
    } catch (const LuaError& error) {
      CHECK(error.kind() == ErrorKind::instructions);
      CHECK(error.line() >= 2);
    }
    CHECK(endless.state.load_text("return 7", "b.lua").plain == 7);
    CHECK_THROWS_AS(endless.answer(1), LuaError);  // it has ended with an error
  }
  Script greedy("local t = {} for i = 1, 1e9 do t[i] = {i} end", limits);
  try {
    greedy.begin();
    FAIL("ended");
  } catch (const LuaError& error) {
    CHECK((error.kind() == ErrorKind::memory || error.kind() == ErrorKind::instructions));
  }
  Script deep("local function f() return 1 + f() end\nreturn f()", {64u << 20, 50'000'000, 60});
  CHECK_THROWS_AS(deep.begin(), LuaError);
}
