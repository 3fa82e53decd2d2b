-- Functions of Lua's libraries whose versions in C can work for long without executing Lua instructions. Each step of
-- the versions here executes some, so that the budgets of a script limit them. `charge(n)` counts n instructions for
-- work of known size in C; `string_max` is the largest size of a string. The file is loaded without debug information,
-- so that errors get the place of the script's call.
local string, table, charge, string_max = ...
local raw_find, raw_rep, raw_format, sub = string.find, string.rep, string.format, string.sub
local raw_concat, raw_unpack = table.concat, table.unpack

local function fail(...) error(raw_format(...), 0) end

local function wrong(value, index, name, wanted)
  local given = value == nil and "no value" or type(value)
  fail("bad argument #%d to '%s' (%s expected, got %s)", index, name, wanted, given)
end

local function text_of(value, index, name)
  if type(value) == "string" then return value end
  return type(value) == "number" and tostring(value) or wrong(value, index, name, "string")
end

local function integer_of(value, index, name, otherwise)
  if value == nil and otherwise then return otherwise end
  local number = tonumber(value) or wrong(value, index, name, "number")
  if number % 1 ~= 0 or number >= 2 ^ 63 or number < -(2 ^ 63) then
    fail("bad argument #%d to '%s' (number has no integer representation)", index, name)
  end
  return number | 0
end

-- ---- patterns (section 6.4.1 of Lua's manual). The functions in C match single items only, which takes linear time.

local captures_max, depth_max, set_max = 32, 200, 1024
local short_set, piece = 64, 4096 -- bytes
local open, position = -1, -2 -- sizes of captures that are not finished, or are positions

-- The index of the ']' of the set that begins at `at`.
local function set_end(pattern, at)
  local p = sub(pattern, at + 1, at + 1) == "^" and at + 2 or at + 1
  repeat
    if p > #pattern then fail("malformed pattern (missing ']')") end
    if p - at > set_max then fail("a set of a pattern has more than %d bytes", set_max) end -- C compares them all
    p = p + (sub(pattern, p, p) == "%" and 2 or 1)
  until sub(pattern, p, p) == "]"
  return p
end

-- The item for one character at `at`, and the index of its last character.
local function single_item(pattern, at)
  local c = sub(pattern, at, at)
  if c == "[" then
    local last = set_end(pattern, at)
    return sub(pattern, at, last), last
  elseif c == "%" then
    if at == #pattern then fail("malformed pattern (ends with '%%')") end
    return sub(pattern, at, at + 1), at + 1
  end
  return c ~= "." and raw_find(c, "%p") and "%" .. c or c, at
end

-- The list of a pattern's items: {kind, probe, run}. `probe` matches the item at a position, `run` its repetitions.
local function compile(pattern, at)
  local items = {}
  local function add(kind, probe, last, run)
    items[#items + 1] = {kind = kind, probe = probe, run = run}
    at = last + 1
  end
  while at <= #pattern do
    local c, two = sub(pattern, at, at), sub(pattern, at, at + 1)
    if two == "()" then
      add("position", nil, at + 1)
    elseif c == "(" or c == ")" then
      add(c, nil, at)
    elseif c == "$" and at == #pattern then
      add("end", nil, at)
    elseif two == "%b" then
      if at + 3 > #pattern then fail("malformed pattern (missing arguments to '%%b')") end
      add("balanced", "^" .. sub(pattern, at, at + 3), at + 3)
    elseif two == "%f" then
      if sub(pattern, at + 2, at + 2) ~= "[" then fail("missing '[' after '%%f' in pattern") end
      local last = set_end(pattern, at + 2)
      add("frontier", "^" .. sub(pattern, at, last), last)
    elseif raw_find(two, "^%%%d") then
      add("back", tonumber(sub(two, 2)), at + 1)
    else
      local item, last = single_item(pattern, at)
      local suffix = sub(pattern, last + 1, last + 1)
      local repeated = raw_find(suffix, "^[*+?-]")
      add(repeated and suffix or "one", "^" .. item, repeated and last + 1 or last, "^" .. item .. "*")
    end
  end
  return items
end

-- Matches the items at positions of a text.
local function matcher(text, items)
  local starts, sizes, level = {}, {}, 0
  local match

  local function capture(kind, at, k, depth)
    local found
    if kind == ")" then
      local which = level
      while which > 0 and sizes[which] ~= open do which = which - 1 end
      if which == 0 then fail("invalid pattern capture") end
      sizes[which] = at - starts[which]
      found = match(k, at, depth)
      if not found then sizes[which] = open end
    else
      if level == captures_max then fail("too many captures") end
      level = level + 1
      starts[level], sizes[level] = at, kind == "(" and open or position
      found = match(k, at, depth)
      if not found then level = level - 1 end
    end
    return found
  end

  -- The last position of the longest run of an item's repetitions at `at`. C compares each character with all of a set, so a run
  -- of a long set is found in pieces.
  local function run_end(item, at)
    if #item.run <= short_set then
      local _, last = raw_find(text, item.run, at)
      charge(last - at + 1)
      return last
    end
    while true do
      local _, size = raw_find(sub(text, at, at + piece - 1), item.run)
      charge(size * #item.run // 8)
      at = at + size
      if size < piece then return at - 1 end
    end
  end

  -- The position after a match of the items from number `k` at `at`, or nil.
  function match(k, at, depth)
    if depth == 0 then fail("pattern too complex") end
    while items[k] do
      local item = items[k]
      local kind, probe, found = item.kind, item.probe, nil
      k = k + 1
      if kind == "one" then
        if not raw_find(text, probe, at) then return nil end
        at = at + 1
      elseif kind == "?" then
        found = raw_find(text, probe, at) and match(k, at + 1, depth - 1)
        if found then return found end
      elseif kind == "*" or kind == "+" then
        for from = run_end(item, at) + 1, kind == "*" and at or at + 1, -1 do
          found = match(k, from, depth - 1)
          if found then return found end
        end
        return nil
      elseif kind == "-" then
        found = match(k, at, depth - 1)
        while not found do
          if not raw_find(text, probe, at) then return nil end
          at = at + 1
          found = match(k, at, depth - 1)
        end
        return found
      elseif kind == "balanced" or kind == "frontier" then
        if kind == "balanced" then charge((#text - at + 1) // 4 + 1) end
        local _, last = raw_find(text, probe, at)
        if not last then return nil end
        at = last + 1
      elseif kind == "end" then
        return at > #text and at or nil
      elseif kind == "back" then
        local size = sizes[probe]
        if probe == 0 or probe > level or size == open then fail("invalid capture index %%%d", probe) end
        if size == position or sub(text, at, at + size - 1) ~= sub(text, starts[probe], starts[probe] + size - 1) then
          return nil
        end
        at = at + size
      else
        return capture(kind, at, k, depth - 1)
      end
    end
    return at
  end

  local made = {}
  function made.match(at)
    level = 0
    return match(1, at, depth_max)
  end
  -- Capture number `which` of a match [from, past). 0, or 1 in a pattern without captures: the match itself.
  function made.capture(which, from, past)
    if which == 0 or (which == 1 and level == 0) then return sub(text, from, past - 1) end
    if which > level then fail("invalid capture index %%%d", which) end
    if sizes[which] == open then fail("unfinished capture") end
    return sizes[which] == position and starts[which] or sub(text, starts[which], starts[which] + sizes[which] - 1)
  end
  function made.captures(from, past)
    local all, count = {}, from and level == 0 and 1 or level
    for i = 1, count do all[i] = made.capture(i, from, past) end
    return raw_unpack(all, 1, count)
  end
  return made
end

local function start_of(init, size)
  if init < 0 then init = size + init + 1 end
  return init < 1 and 1 or init
end

local function find_or_match(name, text, pattern, init, plain)
  text, pattern = text_of(text, 1, name), text_of(pattern, 2, name)
  init = start_of(integer_of(init, 3, name, 1), #text)
  if init > #text + 1 then return nil end
  if name == "find" and (plain or not raw_find(pattern, "[%^%$%*%+%?%.%(%[%%%-]")) then
    local size = #text - init + 1
    charge(size // 32 + size * #pattern // 256 + 1) -- the search compares the pattern at each position
    return raw_find(text, pattern, init, true)
  end
  local anchored = sub(pattern, 1, 1) == "^"
  local matching = matcher(text, compile(pattern, anchored and 2 or 1))
  for at = init, anchored and init or #text + 1 do
    local past = matching.match(at)
    if past and name == "find" then return at, past - 1, matching.captures() end
    if past then return matching.captures(at, past) end
  end
  return nil
end

function string.find(...) return find_or_match("find", ...) end
function string.match(...) return find_or_match("match", ...) end

function string.gmatch(text, pattern, init)
  text, pattern = text_of(text, 1, "gmatch"), text_of(pattern, 2, "gmatch")
  local at, last = start_of(integer_of(init, 3, "gmatch", 1), #text), nil
  local matching = matcher(text, compile(pattern, 1))
  return function()
    while at <= #text + 1 do
      local from, past = at, matching.match(at)
      if past and past ~= last then
        at, last = past, past
        return matching.captures(from, past)
      end
      at = at + 1
    end
  end
end

-- The replacement string with its %0, %1 ... replaced.
local function expand(template, matching, from, past)
  local parts, at = {}, 1
  while true do
    local escape = raw_find(template, "%", at, true)
    if not escape then break end
    local c = sub(template, escape + 1, escape + 1)
    if c ~= "%" and not raw_find(c, "^%d") then fail("invalid use of '%%' in replacement string") end
    parts[#parts + 1] = sub(template, at, escape - 1)
    parts[#parts + 1] = c == "%" and c or matching.capture(tonumber(c), from, past)
    at = escape + 2
  end
  parts[#parts + 1] = sub(template, at)
  return raw_concat(parts)
end

function string.gsub(text, pattern, replacement, count_max)
  text, pattern = text_of(text, 1, "gsub"), text_of(pattern, 2, "gsub")
  local kind = type(replacement)
  if kind == "number" then replacement, kind = tostring(replacement), "string" end
  if kind ~= "string" and kind ~= "function" and kind ~= "table" then
    wrong(replacement, 3, "gsub", "string/function/table")
  end
  count_max = integer_of(count_max, 4, "gsub", #text + 1)
  local anchored = sub(pattern, 1, 1) == "^"
  local matching = matcher(text, compile(pattern, anchored and 2 or 1))
  local parts, count, at, last = {}, 0, 1, nil
  while count < count_max do
    local past = matching.match(at)
    if past and past ~= last then
      count = count + 1
      local value
      if kind == "string" then
        value = expand(replacement, matching, at, past)
      elseif kind == "function" then
        value = replacement(matching.captures(at, past))
      else
        value = replacement[matching.capture(1, at, past)]
      end
      value = value or sub(text, at, past - 1)
      if type(value) ~= "string" and type(value) ~= "number" then
        fail("invalid replacement value (a %s)", type(value))
      end
      parts[#parts + 1] = value
      at, last = past, past
    elseif at <= #text then
      parts[#parts + 1] = sub(text, at, at)
      at = at + 1
    else
      break
    end
    if anchored then break end
  end
  parts[#parts + 1] = sub(text, at)
  return raw_concat(parts), count
end

function string.rep(text, count, separator)
  text, count = text_of(text, 1, "rep"), integer_of(count, 2, "rep")
  separator = separator == nil and "" or text_of(separator, 3, "rep")
  local size = (#text + #separator) * 1.0 * count
  if size <= 0 then return "" end
  if size > string_max then fail("resulting string too large") end
  charge(size // 16)
  return raw_rep(text, count, separator)
end
string.dump = nil

-- ---- tables: __len can return any length, and __index any value

local function table_of(value, name)
  if type(value) ~= "table" then wrong(value, 1, name, "table") end
  return value
end

function table.insert(list, ...)
  local past, count = #table_of(list, "insert") + 1, select("#", ...)
  local at, value = past, ...
  if count == 2 then
    at, value = ...
    at = integer_of(at, 2, "insert")
    if at < 1 or at > past then fail("bad argument #2 to 'insert' (position out of bounds)") end
    for i = past, at + 1, -1 do list[i] = list[i - 1] end
  elseif count ~= 1 then
    fail("wrong number of arguments to 'insert'")
  end
  list[at] = value
end

function table.remove(list, at)
  local size = #table_of(list, "remove")
  at = integer_of(at, 2, "remove", size)
  if at ~= size and (at < 1 or at > size + 1) then fail("bad argument #2 to 'remove' (position out of bounds)") end
  local removed = list[at]
  for i = at, size - 1 do list[i] = list[i + 1] end
  list[at < size and size or at] = nil
  return removed
end

function table.move(from, first, last, to, target)
  first, last, to = integer_of(first, 2, "move"), integer_of(last, 3, "move"), integer_of(to, 4, "move")
  table_of(from, "move")
  target = target or from
  if last < first then return target end
  if to > last or to <= first or target ~= from then
    for i = 0, last - first do target[to + i] = from[first + i] end
  else
    for i = last - first, 0, -1 do target[to + i] = from[first + i] end
  end
  return target
end

function table.concat(list, separator, first, last)
  local size = #table_of(list, "concat")
  first, last = integer_of(first, 3, "concat", 1), integer_of(last, 4, "concat", size)
  local parts = {}
  for i = first, last do
    local part = list[i]
    if type(part) ~= "string" and type(part) ~= "number" then
      fail("invalid value (at index %d) in table for 'concat'", i)
    end
    parts[#parts + 1] = part
  end
  return raw_concat(parts, separator)
end

function table.unpack(list, first, last)
  first = integer_of(first, 2, "unpack", 1)
  if last == nil then last = #list end
  last = integer_of(last, 3, "unpack")
  if first > last then return end
  if last - first < 0 or last - first >= 200000 then fail("too many results to unpack") end
  charge(last - first)
  return raw_unpack(list, first, last)
end

local function less(a, b) return a < b end

-- A heapsort, because no comparison function makes it quadratic.
function table.sort(list, before)
  local size = #table_of(list, "sort")
  if size >= 1 << 31 then fail("bad argument #1 to 'sort' (array too big)") end
  if before ~= nil and type(before) ~= "function" then wrong(before, 2, "sort", "function") end
  before = before or less
  local function sift(value, root, last)
    while 2 * root <= last do
      local child = 2 * root
      if child < last and before(list[child], list[child + 1]) then child = child + 1 end
      if not before(value, list[child]) then break end
      list[root] = list[child]
      root = child
    end
    list[root] = value
  end
  for root = size // 2, 1, -1 do sift(list[root], root, size) end
  for last = size, 2, -1 do
    local value = list[last]
    list[last] = list[1]
    sift(value, 1, last - 1)
  end
end
