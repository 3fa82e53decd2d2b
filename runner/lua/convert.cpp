// Converts Lua tables to plain data. Reads raw entries only, so it runs no script code and raises no errors.
#include "runner/base/text.hpp"
#include "runner/lua/machine.hpp"

namespace runner::lua {

using nlohmann::json;

namespace {

constexpr size_t depth_max = 32, bytes_max = 64u << 20;

/// One conversion of a Lua value to JSON. A table that is reachable twice is copied twice, up to bytes_max in total.
class Converter {
 public:
  Converter(lua_State* lua, const std::string& what, const KeepObject* keep, Strings strings)
      : lua_(lua), what_(what), keep_(keep), strings_(strings) {}

  json any(int index) {
    spend(64);
    switch (lua_type(lua_, index)) {
      case LUA_TNIL:
      case LUA_TNONE:
        return nullptr;
      case LUA_TTABLE:
        return table(index);
      case LUA_TBOOLEAN:
      case LUA_TNUMBER:
        return read_value(lua_, index).plain;
      case LUA_TSTRING:
        spend(lua_rawlen(lua_, index));
        return text(index);
      case LUA_TUSERDATA:
        if (auto* object = object_at(lua_, index); object && keep_ && *keep_) return kept(*object);
        [[fallthrough]];
      default:
        refuse(kind_at(lua_, index) + " is not plain data");
    }
  }

 private:
  json text(int index) const {
    json value = read_value(lua_, index).plain;
    const auto& bytes = value.get_ref<const std::string&>();
    if (strings_ == Strings::utf8 && first_invalid_utf8(bytes))
      refuse(fmt::format("\"{}\" is not UTF-8 text", escape_invalid_utf8(bytes)));
    return value;
  }
  json kept(const std::shared_ptr<Object>& object) {
    std::string pointer;
    for (const auto& part : path_) {
      pointer += '/';
      for (char byte : part) pointer += byte == '~' ? "~0" : byte == '/' ? "~1" : std::string(1, byte);
    }
    try {
      return (*keep_)(object, pointer);
    } catch (const ScriptMistake& mistake) {
      refuse(mistake.what());
    }
  }
  [[noreturn]] void refuse(const std::string& why) const {
    std::string path;
    for (const auto& part : path_) path += path.empty() || part.front() == '[' ? part : "." + part;
    throw ScriptMistake(fmt::format("{}{}: {}", what_, path.empty() ? "" : " at " + escape_invalid_utf8(path), why));
  }
  void spend(size_t bytes) {
    bytes_ += bytes;
    if (bytes_ > bytes_max) refuse("too much data");
  }

  json table(int index) {
    const void* identity = lua_topointer(lua_, index);
    for (const auto* outer : open_)
      if (outer == identity) refuse("the table contains itself");
    if (open_.size() == depth_max) refuse(fmt::format("nested deeper than {} tables", depth_max));
    if (!lua_checkstack(lua_, 8)) refuse("nested too deeply");
    open_.push_back(identity);
    push_behind_view(lua_, index);
    size_t length = lua_rawlen(lua_, -1);
    json result = length > 0 ? list(length) : named();
    lua_pop(lua_, 1);
    open_.pop_back();
    return result;
  }

  json list(size_t length) {
    check_only_list(length);
    json array = json::array();
    for (size_t i = 1; i <= length; ++i) {
      path_.push_back(fmt::format("[{}]", i));
      if (lua_rawgeti(lua_, -1, static_cast<lua_Integer>(i)) == LUA_TNIL) refuse("a list with a hole");
      array.push_back(any(-1));
      lua_pop(lua_, 1);
      path_.pop_back();
    }
    return array;
  }

  /// Throws if a list has keys other than 1..length.
  void check_only_list(size_t length) const {
    lua_pushnil(lua_);
    while (lua_next(lua_, -2)) {
      lua_pop(lua_, 1);
      bool item = lua_isinteger(lua_, -1) && lua_tointeger(lua_, -1) >= 1 &&
                  lua_tointeger(lua_, -1) <= static_cast<lua_Integer>(length);
      if (!item) {
        auto key = key_text();
        lua_pop(lua_, 2);
        refuse(fmt::format("both a list and a table with names ({})", key));
      }
    }
  }

  json named() {
    json object = json::object();
    lua_pushnil(lua_);
    while (lua_next(lua_, -2)) {
      if (lua_type(lua_, -2) != LUA_TSTRING) {
        lua_pop(lua_, 1);
        refuse(fmt::format("{} cannot be a key: keys are strings, or 1 to n for a list", key_text()));
      }
      size_t size;
      const char* text = lua_tolstring(lua_, -2, &size);
      path_.emplace_back(text, size);
      if (path_.back().empty()) refuse("an empty key");
      if (first_invalid_utf8(path_.back())) refuse("this key is not UTF-8 text");
      object[path_.back()] = any(-1);
      path_.pop_back();
      lua_pop(lua_, 1);
    }
    if (object.empty()) return json::array();
    return object;
  }

  std::string key_text() const {
    if (lua_type(lua_, -1) == LUA_TSTRING) return std::string("`") + lua_tostring(lua_, -1) + "`";
    if (lua_type(lua_, -1) == LUA_TNUMBER) return read_value(lua_, -1).plain.dump();
    return kind_at(lua_, -1);
  }

  lua_State* lua_;
  const std::string& what_;
  const KeepObject* keep_;
  const Strings strings_;
  std::vector<const void*> open_;
  std::vector<std::string> path_;
  size_t bytes_ = 0;
};

}  // namespace

/// Restores the stack, also when it throws.
json json_at(lua_State* lua, int index, const std::string& what, const KeepObject* keep, Strings strings) {
  int top = lua_gettop(lua);
  try {
    if (!lua_checkstack(lua, 8)) throw ScriptMistake(what + ": Lua's stack is full");
    return Converter(lua, what, keep, strings).any(lua_absindex(lua, index));
  } catch (...) {
    lua_settop(lua, top);
    throw;
  }
}

}  // namespace runner::lua
