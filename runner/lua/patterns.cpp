// Lua's patterns (reference manual, section 6.4.1), reimplemented so that every step counts as an instruction:
// backtracking can take exponential time, and Lua's debug hook does not run inside C functions.
#include <cctype>
#include <cstring>

#include "runner/lua/machine.hpp"

namespace runner::lua {

namespace {

using Byte = unsigned char;
constexpr int captures_max = 32, depth_max = 200;
constexpr ptrdiff_t capture_open = -1, capture_position = -2;

bool in_class(int c, int name) {
  bool found;
  switch (std::tolower(name)) {
    case 'a':
      found = std::isalpha(c);
      break;
    case 'c':
      found = std::iscntrl(c);
      break;
    case 'd':
      found = std::isdigit(c);
      break;
    case 'g':
      found = std::isgraph(c);
      break;
    case 'l':
      found = std::islower(c);
      break;
    case 'p':
      found = std::ispunct(c);
      break;
    case 's':
      found = std::isspace(c);
      break;
    case 'u':
      found = std::isupper(c);
      break;
    case 'w':
      found = std::isalnum(c);
      break;
    case 'x':
      found = std::isxdigit(c);
      break;
    default:
      return name == c;
  }
  return std::isupper(name) ? !found : found;
}

/// `set` points to its '[', `last` to its ']'.
bool in_set(int c, const char* set, const char* last) {
  bool wanted = true;
  if (set[1] == '^') {
    wanted = false;
    ++set;
  }
  while (++set < last) {
    if (*set == '%') {
      ++set;
      if (in_class(c, static_cast<Byte>(*set))) return wanted;
    } else if (set[1] == '-' && set + 2 < last) {
      set += 2;
      if (static_cast<Byte>(set[-2]) <= c && c <= static_cast<Byte>(*set)) return wanted;
    } else if (static_cast<Byte>(*set) == c) {
      return wanted;
    }
  }
  return !wanted;
}

/// Matches one pattern against one text. It has no destructors, because errors leave its functions by longjmp.
struct Matcher {
  lua_State* lua;
  Machine* machine;
  const char *text, *text_end, *pattern_end;
  int depth, level;
  struct Capture {
    const char* start;
    ptrdiff_t size;
  } captures[captures_max];

  void reset() {
    level = 0;
    depth = depth_max;
  }

  [[noreturn]] void malformed(const char* why) {
    luaL_error(lua, "malformed pattern (%s)", why);
    std::abort();
  }

  const char* item_end(const char* p) {
    if (*p == '%') {
      if (p + 1 == pattern_end) malformed("ends with '%'");
      return p + 2;
    }
    if (*p++ != '[') return p;
    if (p < pattern_end && *p == '^') ++p;
    do {
      if (p == pattern_end) malformed("missing ']'");
      if (*p++ == '%') {
        if (p == pattern_end) malformed("missing ']'");
        ++p;
      }
    } while (p == pattern_end || *p != ']');
    return p + 1;
  }

  bool single(const char* s, const char* p, const char* end) {
    machine->charge(lua, 1 + static_cast<size_t>(end - p) / 8);
    if (s >= text_end) return false;
    int c = static_cast<Byte>(*s);
    switch (*p) {
      case '.':
        return true;
      case '%':
        return in_class(c, static_cast<Byte>(p[1]));
      case '[':
        return in_set(c, p, end - 1);
      default:
        return static_cast<Byte>(*p) == c;
    }
  }

  const char* balance(const char* s, const char* p) {
    if (p >= pattern_end - 1) malformed("missing arguments to '%b'");
    if (s >= text_end || *s != *p) return nullptr;
    int open = 1;
    while (++s < text_end) {
      machine->charge(lua, 1);
      if (*s == p[1]) {
        if (--open == 0) return s + 1;
      } else if (*s == *p) {
        ++open;
      }
    }
    return nullptr;
  }

  const char* longest(const char* s, const char* p, const char* end) {
    ptrdiff_t count = 0;
    while (single(s + count, p, end)) ++count;
    for (; count >= 0; --count)
      if (const char* found = match(s + count, end + 1)) return found;
    return nullptr;
  }

  const char* shortest(const char* s, const char* p, const char* end) {
    for (;;) {
      if (const char* found = match(s, end + 1)) return found;
      if (!single(s, p, end)) return nullptr;
      ++s;
    }
  }

  const char* open_capture(const char* s, const char* p, ptrdiff_t kind) {
    if (level >= captures_max) luaL_error(lua, "too many captures");
    captures[level++] = {s, kind};
    const char* found = match(s, p);
    if (!found) --level;
    return found;
  }

  const char* close_capture(const char* s, const char* p) {
    int which = level - 1;
    while (which >= 0 && captures[which].size != capture_open) --which;
    if (which < 0) luaL_error(lua, "invalid pattern capture");
    captures[which].size = s - captures[which].start;
    const char* found = match(s, p);
    if (!found) captures[which].size = capture_open;
    return found;
  }

  const char* back_reference(const char* s, int digit) {
    int which = digit - '1';
    if (which < 0 || which >= level || captures[which].size == capture_open)
      luaL_error(lua, "invalid capture index %%%d", which + 1);
    ptrdiff_t size = captures[which].size == capture_position ? 0 : captures[which].size;
    machine->charge(lua, 1 + static_cast<size_t>(size) / 16);
    bool same = text_end - s >= size && std::memcmp(captures[which].start, s, static_cast<size_t>(size)) == 0;
    return same ? s + size : nullptr;
  }

  const char* match(const char* s, const char* p) {
    if (depth-- == 0) luaL_error(lua, "pattern too complex");
    const char* found = match_items(s, p);
    ++depth;
    return found;
  }

  const char* match_items(const char* s, const char* p) {
    for (;;) {
      machine->charge(lua, 1);
      if (p == pattern_end) return s;
      if (*p == '(')
        return p + 1 < pattern_end && p[1] == ')' ? open_capture(s, p + 2, capture_position)
                                                  : open_capture(s, p + 1, capture_open);
      if (*p == ')') return close_capture(s, p + 1);
      if (*p == '$' && p + 1 == pattern_end) return s == text_end ? s : nullptr;
      if (*p == '%' && p + 1 < pattern_end && special(s, p)) {
        if (!s) return nullptr;
        continue;
      }
      const char* end = item_end(p);
      char suffix = end < pattern_end ? *end : '\0';
      if (suffix == '*') return longest(s, p, end);
      if (suffix == '+') return single(s, p, end) ? longest(s + 1, p, end) : nullptr;
      if (suffix == '-') return shortest(s, p, end);
      bool fits = single(s, p, end);
      if (suffix == '?') {
        if (fits)
          if (const char* found = match(s + 1, end + 1)) return found;
        p = end + 1;
        continue;
      }
      if (!fits) return nullptr;
      ++s;
      p = end;
    }
  }

  /// Matches %b, %f and back references. Advances `s` and `p`; sets `s` to null if there is no match. Returns false for
  /// other items.
  bool special(const char*& s, const char*& p) {
    if (p[1] == 'b') {
      s = balance(s, p + 2);
      p += 4;
      return true;
    }
    if (p[1] == 'f') {
      p += 2;
      if (p >= pattern_end || *p != '[') luaL_error(lua, "missing '[' after '%%f' in pattern");
      const char* end = item_end(p);
      int before = s == text ? 0 : static_cast<Byte>(s[-1]), here = s < text_end ? static_cast<Byte>(*s) : 0;
      machine->charge(lua, 1 + static_cast<size_t>(end - p) / 8);
      if (in_set(before, p, end - 1) || !in_set(here, p, end - 1)) s = nullptr;
      p = end;
      return true;
    }
    if (!std::isdigit(static_cast<Byte>(p[1]))) return false;
    s = back_reference(s, p[1]);
    p += 2;
    return true;
  }

  /// Pushes capture `which`, or the complete match if the pattern has no captures.
  void push_capture(int which, const char* start, const char* end) {
    if (which >= level) {
      if (which != 0) luaL_error(lua, "invalid capture index %%%d", which + 1);
      lua_pushlstring(lua, start, static_cast<size_t>(end - start));
    } else if (captures[which].size == capture_position) {
      lua_pushinteger(lua, captures[which].start - text + 1);
    } else {
      if (captures[which].size == capture_open) luaL_error(lua, "unfinished capture");
      lua_pushlstring(lua, captures[which].start, static_cast<size_t>(captures[which].size));
    }
  }

  /// If `start` is null, does not push the complete match for a pattern without captures.
  int push_captures(const char* start, const char* end) {
    int count = level == 0 && start ? 1 : level;
    luaL_checkstack(lua, count, "too many captures");
    for (int i = 0; i < count; ++i) push_capture(i, start, end);
    return count;
  }
};

Matcher matcher(lua_State* lua, const char* text, size_t size, const char* pattern_end) {
  Matcher state;
  state.lua = lua;
  state.machine = &Machine::of(lua);
  state.text = text;
  state.text_end = text + size;
  state.pattern_end = pattern_end;
  state.reset();
  return state;
}

/// Converts a script's position to an offset from 0; size + 1 if it is after the end.
size_t start_position(lua_Integer position, size_t size) {
  if (position > 0)
    return static_cast<lua_Unsigned>(position) - 1 > size ? size + 1 : static_cast<size_t>(position - 1);
  if (position == 0 || position < -static_cast<lua_Integer>(size)) return 0;
  return size - static_cast<size_t>(-position);
}

bool is_plain(const char* pattern, size_t size) {
  for (size_t i = 0; i < size; ++i)
    if (pattern[i] != '\0' && std::strchr("^$*+?.([%-", pattern[i])) return false;
  return true;
}

int find_or_match(lua_State* lua, bool find) {
  size_t size, pattern_size;
  const char* text = luaL_checklstring(lua, 1, &size);
  const char* pattern = luaL_checklstring(lua, 2, &pattern_size);
  size_t start = start_position(luaL_optinteger(lua, 3, 1), size);
  auto& machine = Machine::of(lua);
  if (start > size) {
    lua_pushnil(lua);
    return 1;
  }
  if (find && (lua_toboolean(lua, 4) || is_plain(pattern, pattern_size))) {
    machine.charge(lua, 1 + (size + pattern_size) / 32);
    const auto* found = static_cast<const char*>(memmem(text + start, size - start, pattern, pattern_size));
    if (!found) {
      lua_pushnil(lua);
      return 1;
    }
    lua_pushinteger(lua, found - text + 1);
    lua_pushinteger(lua, found - text + static_cast<lua_Integer>(pattern_size));
    return 2;
  }
  Matcher state = matcher(lua, text, size, pattern + pattern_size);
  bool anchored = pattern_size > 0 && *pattern == '^';
  if (anchored) ++pattern;
  for (const char* at = text + start; at <= state.text_end; ++at) {
    state.reset();
    if (const char* end = state.match(at, pattern)) {
      if (!find) return state.push_captures(at, end);
      lua_pushinteger(lua, at - text + 1);
      lua_pushinteger(lua, end - text);
      return state.push_captures(nullptr, nullptr) + 2;
    }
    if (anchored) break;
  }
  lua_pushnil(lua);
  return 1;
}

int string_find(lua_State* lua) { return find_or_match(lua, true); }
int string_match(lua_State* lua) { return find_or_match(lua, false); }

/// Upvalues: text, pattern, start of the next search, end of the last match (from 0; -1: none).
int next_match(lua_State* lua) {
  size_t size, pattern_size;
  const char* text = lua_tolstring(lua, lua_upvalueindex(1), &size);
  const char* pattern = lua_tolstring(lua, lua_upvalueindex(2), &pattern_size);
  lua_Integer last_end = lua_tointeger(lua, lua_upvalueindex(4));
  Matcher state = matcher(lua, text, size, pattern + pattern_size);
  for (const char* at = text + lua_tointeger(lua, lua_upvalueindex(3)); at <= state.text_end; ++at) {
    state.reset();
    const char* end = state.match(at, pattern);
    if (!end || end - text == last_end) continue;
    lua_pushinteger(lua, end - text);
    lua_copy(lua, -1, lua_upvalueindex(3));
    lua_replace(lua, lua_upvalueindex(4));
    return state.push_captures(at, end);
  }
  return 0;
}

int string_gmatch(lua_State* lua) {
  size_t size;
  luaL_checklstring(lua, 1, &size);
  luaL_checkstring(lua, 2);
  auto start = static_cast<lua_Integer>(start_position(luaL_optinteger(lua, 3, 1), size));
  lua_settop(lua, 2);
  lua_pushinteger(lua, start);
  lua_pushinteger(lua, -1);
  lua_pushcclosure(lua, next_match, 4);
  return 1;
}

/// Adds the replacement string, with %1 ... replaced, to the buffer.
void add_template(Matcher& state, luaL_Buffer* buffer, const char* start, const char* end) {
  size_t size;
  const char* text = lua_tolstring(state.lua, 3, &size);
  state.machine->charge(state.lua, size / 16);
  for (size_t i = 0; i < size; ++i) {
    if (text[i] != '%') {
      luaL_addchar(buffer, text[i]);
      continue;
    }
    ++i;
    if (i < size && text[i] == '%') {
      luaL_addchar(buffer, '%');
    } else if (i < size && text[i] == '0') {
      luaL_addlstring(buffer, start, static_cast<size_t>(end - start));
    } else if (i < size && std::isdigit(static_cast<Byte>(text[i]))) {
      state.push_capture(text[i] - '1', start, end);
      luaL_tolstring(state.lua, -1, nullptr);
      lua_remove(state.lua, -2);
      luaL_addvalue(buffer);
    } else {
      luaL_error(state.lua, "invalid use of '%%' in replacement string");
    }
  }
}

void add_replacement(Matcher& state, luaL_Buffer* buffer, const char* start, const char* end) {
  lua_State* lua = state.lua;
  int type = lua_type(lua, 3);
  if (type == LUA_TSTRING || type == LUA_TNUMBER) return add_template(state, buffer, start, end);
  if (type == LUA_TFUNCTION) {
    lua_pushvalue(lua, 3);
    int count = state.push_captures(start, end);
    lua_call(lua, count, 1);
  } else {
    state.push_capture(0, start, end);
    lua_gettable(lua, 3);
  }
  if (!lua_toboolean(lua, -1)) {
    lua_pop(lua, 1);
    luaL_addlstring(buffer, start, static_cast<size_t>(end - start));
    return;
  }
  if (!lua_isstring(lua, -1)) luaL_error(lua, "invalid replacement value (a %s)", luaL_typename(lua, -1));
  luaL_addvalue(buffer);
}

int string_gsub(lua_State* lua) {
  size_t size, pattern_size;
  const char* text = luaL_checklstring(lua, 1, &size);
  const char* pattern = luaL_checklstring(lua, 2, &pattern_size);
  int type = lua_type(lua, 3);
  luaL_argexpected(lua, type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TFUNCTION || type == LUA_TTABLE, 3,
                   "string/function/table");
  if (type == LUA_TNUMBER) luaL_checkstring(lua, 3);  // becomes a string in place
  lua_Integer count_max = luaL_optinteger(lua, 4, static_cast<lua_Integer>(size) + 1), count = 0;
  Matcher state = matcher(lua, text, size, pattern + pattern_size);
  bool anchored = pattern_size > 0 && *pattern == '^';
  if (anchored) ++pattern;
  luaL_Buffer buffer;
  luaL_buffinit(lua, &buffer);
  const char *at = text, *last_end = nullptr;
  while (count < count_max) {
    state.reset();
    const char* end = state.match(at, pattern);
    if (end && end != last_end) {
      ++count;
      add_replacement(state, &buffer, at, end);
      at = last_end = end;
    } else if (at < state.text_end) {
      luaL_addchar(&buffer, *at);
      ++at;
    } else {
      break;
    }
    if (anchored) break;
  }
  luaL_addlstring(&buffer, at, static_cast<size_t>(state.text_end - at));
  luaL_pushresult(&buffer);
  lua_pushinteger(lua, count);
  return 2;
}

}  // namespace

void add_patterns(lua_State* lua) {
  const luaL_Reg functions[] = {{"find", string_find},
                                {"match", string_match},
                                {"gmatch", string_gmatch},
                                {"gsub", string_gsub},
                                {nullptr, nullptr}};
  luaL_setfuncs(lua, functions, 0);
}

}  // namespace runner::lua
