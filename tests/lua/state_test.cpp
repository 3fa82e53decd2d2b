// Lua states: environments of files, error messages, budgets of calls.
#include "runner/lua/state.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace runner::lua;

namespace {

/// The error of loading `text` as "a.lua".
std::string said_of(State& state, const std::string& text) {
  try {
    state.load_text(text, "a.lua");
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

nlohmann::json value_of(State& state, const std::string& text) { return state.load_text(text, "a.lua").plain; }

}  // namespace

TEST_CASE("errors contain file, line and call stack") {
  State state;
  CHECK(said_of(state,
                "local function inner(x)\n  return x.y\nend\nlocal function outer()\n  inner(nil)\n  return "
                "1\nend\nouter()\nreturn 1") ==
        "a.lua:2: attempt to index a nil value (local 'x')\n"
        "  in function `inner`\n"
        "  called from a.lua:5, function `outer`\n"
        "  called from a.lua:8");
  CHECK(said_of(state, "x = = 1") == "a.lua:1: unexpected symbol near '='");
  CHECK(said_of(state, "\nerror('plain words')") == "a.lua:2: plain words");
  CHECK(said_of(state, "error('without a place', 0)") == "a.lua:1: without a place");
  CHECK(said_of(state, "error({})") == "a.lua:1: error() was called with table instead of a message");
  CHECK(said_of(state, "error(setmetatable({}, {__tostring = function() return 'an object' end}))") ==
        "a.lua:1: an object");
  CHECK(said_of(state, "\x1bLua") == "a.lua: this is bytecode; only source text is loaded");
}

TEST_CASE("places are correct for long file names") {
  State state;
  std::string name = std::string(80, 'd') + "/hook.lua";
  try {
    state.load_text("local x\n\nx()", name);
    FAIL("no error");
  } catch (const LuaError& error) {
    CHECK(error.file() == name);
    CHECK(error.line() == 3);
    CHECK(error.message() == "attempt to call a nil value (local 'x')");
    CHECK(error.kind() == ErrorKind::script);
  }
}

TEST_CASE("every call has full budgets, and errors of budgets contain the place") {
  StateOptions options;
  options.limits = {1 << 20, 200'000, 5.0};
  State state(options);
  CHECK(said_of(state, "local function spin()\n  while true do end\nend\nspin()") ==
        "a.lua:2: took more than 200000 Lua instructions\n  in function `spin`\n  called from a.lua:4");
  CHECK(said_of(state, "local t = {}\nfor i = 1, 1e9 do\n  t[i] = 0.5\nend") ==
        "a.lua:3: needs more memory than 1.00 MiB, or a string longer than 64.0 KiB");
  auto module = state.load_text("return {step = function() for i = 1, 2000 do end end}", "b.lua").reference;
  auto step = state.field(module, "step").reference;
  for (int i = 0; i < 50; ++i) CHECK_NOTHROW(state.call(step));
  CHECK(state.instructions_used() >= 2000);
  CHECK(state.instructions_used() < 4000);
  CHECK(state.memory_bytes() < 1 << 20);
}

TEST_CASE("to open a state takes nothing from the budgets of its scripts") {
  StateOptions options;
  options.limits.instructions = 1000;  // the least value of hooks.instruction_limit
  State state(options);
  CHECK(value_of(state, "return 6 * 7") == 42);
  CHECK(said_of(state, "while true do end") == "a.lua:1: took more than 1000 Lua instructions");
}

TEST_CASE("the clock stops a script that needs few instructions") {
  StateOptions options;
  options.limits.seconds = 0.05;
  options.limits.instructions = int64_t{1} << 60;
  State state(options);
  CHECK(said_of(state, "while true do end") == "a.lua:1: took more than 0.05 s");
}

TEST_CASE("each file has separate globals, and libraries are read-only") {
  State state;
  value_of(state, "shared = 1; print = nil; string = nil");
  CHECK(value_of(state, "return shared == nil and print ~= nil and _G.string.rep('ab', 2)") == "abab");
  CHECK(said_of(state, "math.pi = 3") == "a.lua:1: this table is read-only: `pi` cannot be set");
  CHECK(value_of(state, "local n = 0; for name in pairs(math) do n = n + 1 end; return n > 20") == true);
  CHECK(value_of(state, "return load('x = 5; return x')() + x") == 10);
  CHECK(value_of(state, "return ('x'):rep(3, '-') .. #'abc' .. select('#', table.unpack({1, 2, 3}))") == "x-x-x33");
}

TEST_CASE("functions of the sandbox name themselves and the place in errors about their arguments") {
  State state;
  CHECK(said_of(state, "\nsetmetatable(1, {})") ==
        "a.lua:2: bad argument #1 to 'setmetatable' (table expected, got number)");
  CHECK(value_of(state, "return select(2, pcall(function() setmetatable({}) end))") ==
        "a.lua:1: bad argument #2 to 'setmetatable' (nil or table expected, got no value)");
  CHECK(said_of(state, "rawset({}, 1)") == "a.lua:1: bad argument #3 to 'rawset' (value expected, got no value)");
  CHECK(said_of(state, "math.randomseed(1.5)") ==
        "a.lua:1: bad argument #1 to 'randomseed' (integer expected, got number)");
  CHECK(value_of(state, "math.randomseed('7', 2.0) return getmetatable(setmetatable({}, nil)) == nil") == true);
}

TEST_CASE("random numbers depend on the seed") {
  auto draw = [](uint64_t seed) {
    StateOptions options;
    options.seed = seed;
    State state(options);
    return state.load_text("return math.random(1 << 40)", "a.lua").plain;
  };
  CHECK(draw(7) == draw(7));
  CHECK(draw(7) != draw(8));
  State state;
  CHECK(said_of(state, "math.randomseed()") ==
        "a.lua:1: bad argument #1 to 'randomseed' (number expected, got no value)");
  CHECK(
      value_of(state,
               "math.randomseed(3); local a = math.random(1000); math.randomseed(3); return a == math.random(1000)") ==
      true);
}

TEST_CASE("print passes lines to the caller") {
  std::vector<std::string> lines;
  StateOptions options;
  options.print = [&](std::string_view line) { lines.emplace_back(line); };
  State state(options);
  value_of(state, "print('a', 1, nil, 2.5); print()");
  CHECK(lines == std::vector<std::string>{"a\t1\tnil\t2.5", ""});
}

TEST_CASE("require finds files in the folder of the calling file") {
  TemporaryFolder folder;
  write_file_atomic(folder.path / "main.lua",
                    "local a, b = require 'helper', require 'helper'\nreturn a == b and a.twice(21)");
  write_file_atomic(folder.path / "helper.lua", "return {twice = function(x) return 2 * x end}");
  write_file_atomic(folder.path / "wrong.lua", "return 1 +");
  State state;
  CHECK(state.load_file(folder.path / "main.lua", "main.lua").plain == 42);
  auto said = [&](const std::string& text) {
    try {
      state.load_text(text, "hooks/a.lua", folder.path);
    } catch (const LuaError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  CHECK(said("require 'helpr'") ==
        "hooks/a.lua:1: require: there is no helpr.lua in the folder of this file; did you mean \"helper\"?");
  CHECK(said("require '/etc/passwd'") ==
        "hooks/a.lua:1: require: \"/etc/passwd\" is not the name of a file in this folder (letters, digits, _ and -)");
  CHECK(said("\nrequire 'wrong'") == "hooks/a.lua:2: hooks/wrong.lua:1: unexpected symbol near <eof>");
}

TEST_CASE("a trusted state has the standard libraries, and still has budgets") {
  StateOptions options;
  options.trusted = true;
  options.limits.instructions = 100'000;
  State state(options);
  CHECK(value_of(state, "return type(io.open) .. type(os.execute) .. type(debug.getinfo) .. type(package.path)") ==
        "functionfunctionfunctionstring");
  CHECK(said_of(state, "while true do pcall(function() while true do end end) end") ==
        "a.lua:1: took more than 100000 Lua instructions");
}

TEST_CASE("patterns, sorting and moving have the same results as Lua's functions") {
  // Expected results from Lua's reference manual.
  State state;
  auto all = value_of(state, R"lua(
    local out = {}
    local function add(...) out[#out + 1] = table.concat({...}, "|") end
    add(("hello world"):find("o w")); add(("hello world"):find("l+")); add(("hello"):find("")); add(("hello"):find("", 10) or "nil")
    add(("key = value"):match("^(%w+)%s*=%s*(%w+)$")); add(("hello"):match("()ll()"));
  add(("THE (quick) fox") : find("%((%a+)%)")) add((("hello world") : gsub("o", "0")));
  add(("hello world") : gsub("(%w+)", "<%1>"));
  add(("abc") : gsub("%w", "%0%0", 2)) add(("abc") : gsub("", "-"));
  add(("$name is $age") : gsub("%$(%w+)", {name = "Ann", age = 7})) add(("x(a(b)c)y") : match("%b()"));
  add(("THE (quick) fox") : gsub("%f[%a]%a+", string.lower));
  add(("aa bb ab") : match("(%a)%1", 3)) add(("a,b,,c") : gsub(",", ";"));
  add(("[]]") : match("[]]+"));
  add(("a-b") : match("[a%-]+"));
  add(("x^y") : match("[x^]+")) add(("abc") : find("b", -2));
  add(("abc") : find("a", -2) or "nil");
  add(("a.b") : find(".", 1, true)); add(("aXb"):gsub("%u", "%%"))
    for k, v in ("a=1, b=2"):gmatch("(%w+)=(%w+)") do add(k, v) end
    for w in ("one two"):gmatch("%a+") do add(w) end
    for p in ("abc"):gmatch("()") do add(p) end
    local list = {5, 2, 8, 1, 9, 3}
    table.sort(list);
  add(table.unpack(list));
  table.sort(list, function(a, b) return a > b end);
  add(table.unpack(list)) table.insert(list, 7);
  table.insert(list, 1, 0);
  add(table.remove(list, 2), table.remove(list), #list);
  add(table.unpack(list)) add(table.unpack(table.move({1, 2, 3}, 2, 3, 1)));
  add(table.unpack(table.move({1, 2, 3}, 1, 3, 2))); add(table.concat({1, 2, 3}, ", ", 2))
    return table.concat(out, "\n")
  )lua");
  CHECK(
      all ==
      "5|7\n3|4\n1|0\nnil\nkey|value\n3|5\n5|11|quick\nhell0 w0rld\n<hello> <world>|2\naabbc|2\n-a-b-c-|4\nAnn is "
      "7|2\n(a(b)c)\n"
      "the (quick) "
      "fox|3\nb\na;b;;c|3\n]]\na-\nx^\n2|2\nnil\n2|2\na%b|1\na|1\nb|2\none\ntwo\n1\n2\n3\n4\n1|2|3|5|8|9\n9|8|5|3|2|1\n"
      "9|7|6\n0|8|5|3|2|1\n2|3|3\n1|1|2|3\n2, 3");
}

TEST_CASE("a coroutine that was ended by its budget never runs its pending __close functions") {
  StateOptions options;
  options.limits.instructions = 100'000;
  State state(options);
  auto module = state
                    .load_text(R"(
    local M = {}
    function M.kill()
      M.thread = coroutine.create(function()
        local guard <close> = setmetatable({}, {__close = function() M.closed = true while true do end end})
        while true do end
      end)
      coroutine.resume(M.thread)
    end
    function M.kill_wrapped()
      M.wrapped = coroutine.wrap(function()
        local guard <close> = setmetatable({}, {__close = function() M.closed = true while true do end end})
        while true do end
      end)
      M.wrapped()
    end
    function M.again() return select(2, pcall(M.wrapped)) .. tostring(M.closed) end
    function M.close() return select(2, coroutine.close(M.thread)) end
    function M.status() return coroutine.status(M.thread) .. tostring(M.closed) .. tostring(coroutine.resume(M.thread)) end
    return M)",
                               "a.lua")
                    .reference;
  auto call = [&](const char* name) { return state.call(state.field(module, name).reference).plain; };
  CHECK_THROWS_AS(call("kill"), LuaError);
  CHECK(call("close") == "it was stopped when its budget was spent");
  CHECK(call("status") == "deadnilfalse");
  CHECK_THROWS_AS(call("kill_wrapped"), LuaError);
  CHECK(call("again").get<std::string>().ends_with("cannot resume dead coroutinenil"));
}

TEST_CASE("close handlers of other coroutines run as in Lua") {
  State state;
  CHECK(value_of(state, R"lua(
    local log = {}
    local function guard(name) return setmetatable({}, {__close = function(_, e) log[#log + 1] = name .. (e and "!" or "") end}) end
    local wrapped = coroutine.wrap(function() local g <close> = guard("a") error({}) end)
    local caught = tostring(pcall(wrapped))
    log[#log + 1] = caught
    local co = coroutine.create(function() local g <close> = guard("b") coroutine.yield(1, 2) end)
    log[#log + 1] = table.concat({select(2, coroutine.resume(co))}, ",")
    local closed = tostring(coroutine.close(co))
    log[#log + 1] = closed
    log[#log + 1] = tostring(select(2, xpcall(error, function(m) return m .. "?" end, "x")))
    local ok, value = pcall(coroutine.wrap(function() return pcall(function() coroutine.yield(5) return 6 end) end))
    log[#log + 1] = tostring(value)
    return table.concat(log, " "))lua") == "a! false 1,2 b true x? 5");
}
