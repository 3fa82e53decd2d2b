-- The environment of scripts: libraries without functions that access the system or run without limits, read-only unless the scripts are
-- trusted. It runs with all of Lua's libraries. `own` has functions of the program. The file is loaded without debug information, so
-- that errors get the place of the script's call.
local own, trusted = ...
local metatable_of = debug.getmetatable

-- The named functions of a table.
local function pick(from, names)
  local picked = {}
  for _, name in ipairs(names) do picked[name] = from[name] end
  return picked
end

local function refuse(name)
  error(name .. " is not available in the sandbox; `trusted = true` in [hooks] allows it", 3)
end

-- The named functions of a library. To ask for another one is an error with the reason.
local function part(library, names)
  return setmetatable(pick(_G[library], names), {__index = function(_, name)
    refuse(library .. "." .. (type(name) == "string" and name or "?"))
  end})
end

local function charge(library, names)
  for _, name in ipairs(names) do library[name] = own.charged(library[name]) end
end

-- The error of Lua's own functions about an argument, at the place of the script's call. After `wanted`: all arguments of the call.
local function wrong(name, index, wanted, ...)
  local given = index > select("#", ...) and "no value" or type((select(index, ...)))
  error(("bad argument #%d to '%s' (%s expected, got %s)"):format(index, name, wanted, given), 3)
end

charge(_G, {"tonumber"})
charge(string, {"byte", "char", "format", "lower", "pack", "packsize", "reverse", "sub", "unpack", "upper"})
charge(utf8, {"char", "codepoint", "len", "offset"})
local base = pick(_G, {"assert", "error", "getmetatable", "ipairs", "next", "pairs", "rawequal", "rawget", "rawlen",
                       "select", "tonumber", "tostring", "type", "_VERSION"})
base.print, base.pcall, base.xpcall = own.print, own.pcall, own.xpcall

-- Without an argument, Lua would seed from the clock.
local seed, to_integer = math.randomseed, math.tointeger
function math.randomseed(...)
  local first, second = ...
  local low, high = to_integer(tonumber(first)), second == nil and 0 or to_integer(tonumber(second))
  if not low then wrong("randomseed", 1, tonumber(first) and "integer" or "number", ...) end
  if not high then wrong("randomseed", 2, tonumber(second) and "integer" or "number", ...) end
  seed(low, high)
end

coroutine.resume, coroutine.wrap, coroutine.close = own.resume, own.wrap, own.close
local libraries = {string = string, math = math, table = table, utf8 = utf8, coroutine = coroutine}

if trusted then
  os.execute = own.execute
  for _, name in ipairs {"dofile", "loadfile", "rawset", "setmetatable", "collectgarbage"} do base[name] = _G[name] end
  for _, name in ipairs {"os", "debug", "io", "package"} do libraries[name] = _G[name] end
  return base, libraries
end

charge(os, {"date"})
libraries.os, libraries.debug = part("os", {"clock", "date", "difftime", "time"}), part("debug", {"traceback"})
libraries.io, libraries.package = part("io", {}), part("package", {})
metatable_of("").__metatable = false -- ("x"):upper() uses the metatable of strings
for name, library in pairs(libraries) do libraries[name] = own.read_only(library) end

function base.dofile() refuse("dofile") end
function base.loadfile() refuse("loadfile") end

local set_metatable, set, collect = setmetatable, rawset, collectgarbage
local function is_protected(value)
  local meta = type(value) == "table" and metatable_of(value)
  return meta and rawget(meta, "__metatable") ~= nil
end

function base.setmetatable(...)
  local value, meta = ...
  if type(value) ~= "table" then wrong("setmetatable", 1, "table", ...) end
  if type(meta) ~= "table" and (meta ~= nil or select("#", ...) < 2) then
    wrong("setmetatable", 2, "nil or table", ...)
  end
  if is_protected(value) then error("cannot change a protected metatable", 2) end
  if type(meta) == "table" and rawget(meta, "__gc") ~= nil then
    error("metatables with __gc are not available in the sandbox; use __close", 2)
  end
  return set_metatable(value, meta)
end

function base.rawset(...)
  local value, key, new = ...
  if type(value) ~= "table" then wrong("rawset", 1, "table", ...) end
  if select("#", ...) < 3 then wrong("rawset", select("#", ...) + 1, "value", ...) end
  if is_protected(value) then error("this table is read-only", 2) end
  return set(value, key, new)
end

function base.collectgarbage(option)
  option = option == nil and "collect" or tostring(option)
  if option ~= "count" then error('collectgarbage("' .. option .. '") is not available; only "count" is', 2) end
  return collect("count")
end

return base, libraries
