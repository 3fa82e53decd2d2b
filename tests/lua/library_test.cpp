// The functions of library.lua give the same results and errors as those of Lua's own libraries, on random arguments.
#include <catch2/catch_test_macros.hpp>
#include <lua.hpp>
#include <random>

#include "runner/lua/state.hpp"

namespace {

/// Compares `mine` (library.lua) with `theirs` (the same functions of Lua) and returns a description of differences.
const char* const comparison = R"lua(
local theirs, mine, random = ...
local function shown(...)
  local all = {}
  for i = 1, select("#", ...) do all[i] = tostring((select(i, ...))) end
  return theirs.concat(all, "|")
end
local function result(f, ...)
  local got = table.pack(pcall(f, ...))
  if got[1] then return shown(table.unpack(got, 1, got.n)) end
  return (theirs.gsub(tostring(got[2]), "^[^:]*:%d+: ", ""))
end
local atoms = {"a", "b", ".", "%a", "%d", "[ab]", "[^a]", "[a-c%d]", "(", ")", "()", "*", "+", "-", "?", "^", "$", "%1",
  "%b()", "%f[%a]", "]", "[]]", " ", "%%", "[%]x]", "(a*)", "%w+", "\0"}
local characters = {"a", "b", "c", " ", "(", ")", "1", "-", "x", "%", "]", "\0", "^", "$"}
local function text_of(list, most)
  local parts = {}
  for i = 1, random(most) do parts[i] = list[random(#list)] end
  return theirs.concat(parts)
end
local function each(gmatch)
  return function(...)
    local all = {}
    for a, b in gmatch(...) do all[#all + 1] = shown(a, b) end
    return theirs.concat(all, ";")
  end
end
local replacements = {"<%1>", "%0%%", "x", function(...) return select("#", ...) > 1 and shown(...) or nil end, {a = "A", b = 7}}
local different, succeeded = {}, 0
local function compare(name, wrap, ...)
  local a, b = result(wrap(theirs[name]), ...), result(wrap(mine[name]), ...)
  if a:find("^true") then succeeded = succeeded + 1 end
  -- A malformed pattern is an error here also where its malformed part is not reached.
  if a ~= b and not (a:find("^true") and b:find("^malformed")) and not (a:find("^malformed") and b:find("^[mi]nvalid")) then
    different[#different + 1] = shown(name, "<", ...) .. "> " .. a .. " <> " .. b
  end
end
local function same(f) return f end
for _ = 1, 20000 do
  local pattern, text = text_of(atoms, 5), text_of(characters, 9)
  local init = random(4) == 1 and random(20) - 10 or nil
  compare("find", same, text, pattern, init)
  compare("match", same, text, pattern, init)
  compare("gmatch", each, text, pattern, init)
  compare("gsub", same, text, pattern, replacements[random(#replacements)], random(5) == 1 and 2 or nil)
end
for _ = 1, 5000 do
  local numbers, p, q, r = {}, random(10) - 2, random(10) - 2, random(10) - 2
  for i = 1, random(7) - 1 do numbers[i] = random(9) end
  local function changed(f)
    return function(...)
      local list = {table.unpack(numbers)}
      f(list, ...)
      local all = {}
      for i = -10, 20 do all[#all + 1] = tostring(list[i]) end
      return theirs.concat(all, " ")
    end
  end
  compare("insert", changed, 5)
  compare("remove", changed)
  compare("move", changed, p, q, r)
  compare("sort", changed)
  if p >= 1 and p <= #numbers then
    compare("insert", changed, p, 5)
    compare("remove", changed, p)
    compare("concat", same, numbers, ",", p)
    compare("unpack", same, numbers, p)
  end
  compare("rep", same, text_of(characters, 3), p, ",")
end
return succeeded, theirs.concat(different, "\n", 1, math.min(#different, 20))
)lua";

/// Pushes a copy of the tables `string` and `table` as one table.
void push_functions(lua_State* lua) {
  lua_newtable(lua);
  for (const char* library : {LUA_STRLIBNAME, LUA_TABLIBNAME}) {
    lua_getglobal(lua, library);
    lua_pushnil(lua);
    while (lua_next(lua, -2)) {
      lua_pushvalue(lua, -2);
      lua_insert(lua, -2);
      lua_rawset(lua, -5);
    }
    lua_pop(lua, 1);
  }
}

int draw(lua_State* lua) {
  auto& generator = *static_cast<std::mt19937*>(lua_touserdata(lua, lua_upvalueindex(1)));
  lua_pushinteger(lua, 1 + static_cast<lua_Integer>(generator() % static_cast<uint32_t>(lua_tointeger(lua, 1))));
  return 1;
}

int do_nothing(lua_State*) { return 0; }

}  // namespace

TEST_CASE("patterns and functions on tables have the results of Lua's own functions") {
  lua_State* lua = luaL_newstate();
  luaL_openlibs(lua);
  luaL_loadstring(lua, comparison);
  push_functions(lua);
  REQUIRE(luaL_loadfile(lua, RUNNER_SOURCE_DIR "/runner/lua/library.lua") == LUA_OK);
  push_functions(lua);  // library.lua replaces functions in it
  lua_pushvalue(lua, -1);
  lua_insert(lua, -3);
  lua_pushvalue(lua, -1);
  lua_pushcfunction(lua, do_nothing);
  lua_pushinteger(lua, 1 << 20);
  REQUIRE(lua_pcall(lua, 4, 0, 0) == LUA_OK);
  std::mt19937 generator(7);
  lua_pushlightuserdata(lua, &generator);
  lua_pushcclosure(lua, draw, 1);
  const int status = lua_pcall(lua, 3, 2, 0);
  INFO(lua_tostring(lua, -1));
  REQUIRE(status == LUA_OK);
  CHECK(lua_tointeger(lua, 1) > 30000);
  CHECK(std::string(lua_tostring(lua, 2)).empty());
  lua_close(lua);
}

TEST_CASE("cheap functions on a long text stay within the default limits") {
  runner::lua::State state;
  const auto result = state.load_text(R"(
local text = ("a "):rep(10000)
local changed, count = text:gsub("%f[%w]%w+", "x")
local lines, position = 0, 0
text = ("line\n"):rep(20000)
repeat
  position = text:find("\n", position + 1, true)
  if position then lines = lines + 1 end
until not position
return count + lines
)",
                                      "cheap.lua");
  CHECK(result.plain == 30000);
}
