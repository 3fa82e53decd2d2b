// Conversion of values between C++ and Lua: pushing, reading, registered functions, handles and read-only views.
#include <new>

#include "runner/base/text.hpp"
#include "runner/lua/machine.hpp"

namespace runner::lua {

using nlohmann::json;

namespace {

const char view_key = 0;  ///< key in a view's metatable: the table behind it

// ---- registered functions

int push_result(lua_State* lua) {
  const auto* value = static_cast<const Value*>(lua_touserdata(lua, 1));
  lua_settop(lua, 0);
  push_value(lua, *value);
  return 1;
}

/// Runs the body. Returns 1 with the result on the stack, or -1 with the message in Machine::failure. Does not raise.
int run_registered(lua_State* lua, Machine& machine, const Registered& function) noexcept {
  int top = lua_gettop(lua);
  machine.pause_clock();
  try {
    int first = function.method ? 2 : 1;
    Value value = function.body(Arguments(lua, function.name, first, top - first + 1));
    machine.resume_clock();
    lua_settop(lua, top);
    if (!lua_checkstack(lua, 4)) {
      machine.failure = "Lua's stack is full";
      return -1;
    }
    if (value.is_nil()) {
      lua_pushnil(lua);
      return 1;
    }
    if (!value.object && !value.reference && value.plain.is_number_float()) {
      lua_pushnumber(lua, value.plain.get<double>());
      return 1;
    }
    lua_pushcfunction(lua, push_result);
    lua_pushlightuserdata(lua, &value);
    if (lua_pcall(lua, 1, 1, 0) == LUA_OK) return 1;
    machine.failure = function.name + ": no memory for the result";
  } catch (...) {
    machine.resume_clock();
    machine.note_failure();
  }
  return -1;
}

/// Raises the error of run_registered().
int fail(lua_State* lua, Machine& machine) {
  machine.raise_if_spent(lua);
  luaL_where(lua, 1);
  lua_pushlstring(lua, machine.failure.data(), machine.failure.size());
  lua_concat(lua, 2);
  return lua_error(lua);
}

/// Whether the function can wait here. If not, stores the reason in Machine::failure.
bool can_wait(lua_State* lua, Machine& machine, const Registered& function) noexcept {
  if (lua == machine.driven && lua_isyieldable(lua)) return true;
  try {
    machine.failure =
        lua == machine.driven
            ? fmt::format("{}: cannot wait inside of a function that a library calls (tostring, load ...)",
                          function.name)
        : machine.driven
            ? fmt::format("{}: cannot wait inside of a coroutine that the script made itself", function.name)
            : fmt::format("{}: cannot wait while the file is being read", function.name);
  } catch (...) {
    machine.failure.clear();
  }
  return false;
}

int call_registered(lua_State* lua) {
  auto& machine = Machine::of(lua);
  machine.charge(lua, 20);
  const auto* function = static_cast<const Registered*>(lua_touserdata(lua, lua_upvalueindex(1)));
  if (function->waits && !can_wait(lua, machine, *function)) return fail(lua, machine);
  int results = run_registered(lua, machine, *function);
  if (results < 0) return fail(lua, machine);
  if (!function->waits) return results;
  machine.waited = true;
  return lua_yield(lua, results);
}

// ---- handles

const char class_key = 0;  ///< key in a class's metatable: marks it as ours

int drop_object(lua_State* lua) {
  static_cast<std::shared_ptr<Object>*>(lua_touserdata(lua, 1))->~shared_ptr();
  return 0;
}

int same_object(lua_State* lua) {
  auto *a = object_at(lua, 1), *b = object_at(lua, 2);
  lua_pushboolean(lua, a && b && a->get() == b->get());
  return 1;
}

void describe_unknown_member(Machine& machine, const Class& kind, const char* name) noexcept {
  try {
    const auto names = kind.members();
    auto near = nearest(name, names);
    const bool of_lightning = std::string_view(name) == "accelerator" || std::string_view(name) == "precision_plugin";
    machine.failure = fmt::format("a {} has no `{}`{}", kind.name(), name,
                                  of_lightning ? "; [devices] and [precision] of the recipe determine it"
                                  : near       ? "; did you mean `" + *near + "`?"
                                               : "; it has " + join(names, ", "));
  } catch (...) {
    machine.failure.clear();
  }
}

/// Upvalues: table of methods, table of properties, the Class.
int index_object(lua_State* lua) {
  lua_settop(lua, 2);
  lua_pushvalue(lua, 2);
  if (lua_rawget(lua, lua_upvalueindex(1)) != LUA_TNIL) return 1;
  lua_pop(lua, 1);
  lua_pushvalue(lua, 2);
  auto& machine = Machine::of(lua);
  if (lua_rawget(lua, lua_upvalueindex(2)) == LUA_TLIGHTUSERDATA) {
    const auto* property = static_cast<const Registered*>(lua_touserdata(lua, -1));
    lua_settop(lua, 1);
    machine.charge(lua, 20);
    int results = run_registered(lua, machine, *property);
    return results >= 0 ? results : fail(lua, machine);
  }
  const auto& kind = *static_cast<const Class*>(lua_touserdata(lua, lua_upvalueindex(3)));
  describe_unknown_member(machine, kind,
                          lua_type(lua, 2) == LUA_TSTRING ? lua_tostring(lua, 2) : luaL_typename(lua, 2));
  return fail(lua, machine);
}

int refuse_new_field(lua_State* lua) {
  return luaL_error(lua, "the fields of a %s cannot be set", lua_tostring(lua, lua_upvalueindex(1)));
}

int name_object(lua_State* lua) {
  lua_pushfstring(lua, "a %s", lua_tostring(lua, lua_upvalueindex(1)));
  return 1;
}

/// Sets a registered function as a field of the table on top. May raise, so callers must not have destructors.
void set_registered(lua_State* lua, const std::string& name, const Function& body, bool method, bool waits = false) {
  const auto* function = Machine::of(lua).add(name, body, method, waits);
  push_registered(lua, function);
  lua_setfield(lua, -2, name.c_str());
}

void set_properties(lua_State* lua, const Class& kind) {
  auto& machine = Machine::of(lua);
  lua_newtable(lua);
  for (const auto& [name, read] : kind.properties()) {
    const auto* reader = &read;
    auto body = [reader](const Arguments& arguments) {
      auto object = arguments.value(0).object;
      if (!object) throw ScriptMistake(arguments.function_name() + " is a property of an object");
      return (*reader)(*object);
    };
    const auto* function = machine.add(name, body, true);
    lua_pushlightuserdata(lua, const_cast<Registered*>(function));
    lua_setfield(lua, -2, name.c_str());
  }
}

/// Pushes the metatable of a class. Makes it at the first call.
void push_class(lua_State* lua, const Class& kind) {
  if (lua_rawgetp(lua, LUA_REGISTRYINDEX, &kind) == LUA_TTABLE) return;
  lua_pop(lua, 1);
  lua_newtable(lua);
  lua_newtable(lua);
  for (const auto& [name, body] : kind.methods()) set_registered(lua, name, body, true, kind.waits(name));
  set_properties(lua, kind);
  lua_pushlightuserdata(lua, const_cast<Class*>(&kind));
  lua_pushcclosure(lua, index_object, 3);
  lua_setfield(lua, -2, "__index");
  lua_pushstring(lua, kind.name().c_str());
  lua_pushcclosure(lua, refuse_new_field, 1);
  lua_setfield(lua, -2, "__newindex");
  lua_pushstring(lua, kind.name().c_str());
  lua_pushcclosure(lua, name_object, 1);
  lua_setfield(lua, -2, "__tostring");
  lua_pushcfunction(lua, same_object);
  lua_setfield(lua, -2, "__eq");
  lua_pushcfunction(lua, drop_object);
  lua_setfield(lua, -2, "__gc");
  for (const auto& [name, body] : kind.operations()) set_registered(lua, name, body, false);
  lua_pushstring(lua, kind.name().c_str());
  lua_setfield(lua, -2, "__name");
  lua_pushboolean(lua, 0);
  lua_setfield(lua, -2, "__metatable");
  lua_pushboolean(lua, 1);
  lua_rawsetp(lua, -2, &class_key);
  lua_pushvalue(lua, -1);
  lua_rawsetp(lua, LUA_REGISTRYINDEX, &kind);
}

void push_object(lua_State* lua, const std::shared_ptr<Object>& object) {
  push_class(lua, object->kind());
  auto* handle = lua_newuserdatauv(lua, sizeof(std::shared_ptr<Object>), 0);
  new (handle) std::shared_ptr<Object>(object);
  lua_insert(lua, -2);
  lua_setmetatable(lua, -2);
}

// ---- read-only views

int refuse_change(lua_State* lua) {
  if (lua_type(lua, 2) == LUA_TSTRING)
    return luaL_error(lua, "this table is read-only: `%s` cannot be set", lua_tostring(lua, 2));
  return luaL_error(lua, "this table is read-only");
}

int view_length(lua_State* lua) {
  lua_pushinteger(lua, static_cast<lua_Integer>(lua_rawlen(lua, lua_upvalueindex(1))));
  return 1;
}

int view_next(lua_State* lua) {
  lua_settop(lua, 2);
  if (lua_next(lua, lua_upvalueindex(1))) return 2;
  lua_pushnil(lua);
  return 1;
}

int view_pairs(lua_State* lua) {
  lua_pushvalue(lua, lua_upvalueindex(1));
  lua_pushcclosure(lua, view_next, 1);
  lua_pushvalue(lua, 1);
  lua_pushnil(lua);
  return 3;
}

int make_reference(lua_State* lua) {
  lua_pushinteger(lua, luaL_ref(lua, LUA_REGISTRYINDEX));
  return 1;
}

}  // namespace

struct Reference::Slot {
  std::shared_ptr<Machine*> life;
  int reference = LUA_NOREF;
  int type = LUA_TNIL;

  ~Slot() {
    if (!*life) return;
    Machine& machine = **life;
    lua_State* lua = machine.running ? machine.running : machine.main;
    if (lua_checkstack(lua, 4)) luaL_unref(lua, LUA_REGISTRYINDEX, reference);
  }
};

bool Reference::is_function() const { return slot_ && slot_->type == LUA_TFUNCTION; }
bool Reference::is_table() const { return slot_ && slot_->type == LUA_TTABLE; }
bool Reference::is_coroutine() const { return slot_ && slot_->type == LUA_TTHREAD; }

void push_registered(lua_State* lua, const Registered* function) {
  lua_pushlightuserdata(lua, const_cast<Registered*>(function));
  lua_pushcclosure(lua, call_registered, 1);
}

void make_read_only(lua_State* lua) {
  luaL_checkstack(lua, 6, nullptr);
  lua_newtable(lua);           // table, view
  lua_createtable(lua, 0, 6);  // table, view, its metatable
  lua_pushvalue(lua, -3);
  lua_setfield(lua, -2, "__index");
  lua_pushvalue(lua, -3);
  lua_rawsetp(lua, -2, &view_key);
  lua_pushcfunction(lua, refuse_change);
  lua_setfield(lua, -2, "__newindex");
  lua_pushvalue(lua, -3);
  lua_pushcclosure(lua, view_length, 1);
  lua_setfield(lua, -2, "__len");
  lua_pushvalue(lua, -3);
  lua_pushcclosure(lua, view_pairs, 1);
  lua_setfield(lua, -2, "__pairs");
  lua_pushboolean(lua, 0);
  lua_setfield(lua, -2, "__metatable");
  lua_setmetatable(lua, -2);
  lua_remove(lua, -2);
}

void push_behind_view(lua_State* lua, int index) {
  index = lua_absindex(lua, index);
  if (lua_getmetatable(lua, index)) {
    if (lua_rawgetp(lua, -1, &view_key) == LUA_TTABLE) {
      lua_remove(lua, -2);
      return;
    }
    lua_pop(lua, 2);
  }
  lua_pushvalue(lua, index);
}

std::shared_ptr<Object>* object_at(lua_State* lua, int index) {
  if (lua_type(lua, index) != LUA_TUSERDATA || !lua_getmetatable(lua, index)) return nullptr;
  bool ours = lua_rawgetp(lua, -1, &class_key) == LUA_TBOOLEAN;
  lua_pop(lua, 2);
  return ours ? static_cast<std::shared_ptr<Object>*>(lua_touserdata(lua, index)) : nullptr;
}

/// The object that `value` refers to, or null. Does not allocate, because its caller may be left by a longjmp.
static const std::shared_ptr<Object>* kept_object(const json& value, const KeptObjects* objects) {
  if (!objects || value.empty()) return nullptr;
  auto first = value.begin();
  if (first.key() != "$object" || !first->is_string()) return nullptr;
  auto found = objects->find(*first->get_ptr<const std::string*>());
  return found == objects->end() ? nullptr : &found->second;
}

static void push_json_as(lua_State* lua, const json& value, bool read_only, const KeptObjects* objects) {
  luaL_checkstack(lua, 8, "plain data nested too deeply");
  switch (value.type()) {
    case json::value_t::boolean:
      lua_pushboolean(lua, *value.get_ptr<const bool*>());
      break;
    case json::value_t::number_integer:
    case json::value_t::number_unsigned:
      lua_pushinteger(lua, static_cast<lua_Integer>(*value.get_ptr<const int64_t*>()));
      break;
    case json::value_t::number_float:
      lua_pushnumber(lua, *value.get_ptr<const double*>());
      break;
    case json::value_t::string: {
      const auto& text = *value.get_ptr<const std::string*>();
      lua_pushlstring(lua, text.data(), text.size());
      break;
    }
    case json::value_t::array: {
      lua_createtable(lua, static_cast<int>(value.size()), 0);
      lua_Integer at = 0;
      for (auto item = value.begin(); item != value.end(); ++item) {
        push_json_as(lua, *item, read_only, objects);
        lua_rawseti(lua, -2, ++at);
      }
      if (read_only) make_read_only(lua);
      break;
    }
    case json::value_t::object: {
      if (const auto* object = kept_object(value, objects)) {
        push_object(lua, *object);
        break;
      }
      lua_createtable(lua, 0, static_cast<int>(value.size()));
      for (auto item = value.begin(); item != value.end(); ++item) {
        lua_pushlstring(lua, item.key().data(), item.key().size());
        push_json_as(lua, *item, read_only, objects);
        lua_rawset(lua, -3);
      }
      if (read_only) make_read_only(lua);
      break;
    }
    default:
      lua_pushnil(lua);
  }
}

void push_json(lua_State* lua, const json& value, const KeptObjects* objects) {
  push_json_as(lua, value, false, objects);
}
void push_read_only_json(lua_State* lua, const json& value) { push_json_as(lua, value, true, nullptr); }

void push_value(lua_State* lua, const Value& value) {
  luaL_checkstack(lua, 8, nullptr);
  if (value.object)
    push_object(lua, value.object);
  else if (value.reference)
    lua_rawgeti(lua, LUA_REGISTRYINDEX, value.reference.slot()->reference);
  else
    push_json(lua, value.plain);
}

Reference reference_to(lua_State* lua, int index) {
  auto slot = std::make_shared<Reference::Slot>();
  slot->life = Machine::of(lua).life;
  slot->type = lua_type(lua, index);
  index = lua_absindex(lua, index);
  if (!lua_checkstack(lua, 4)) throw environment_error("Lua's stack is full");
  lua_pushcfunction(lua, make_reference);
  lua_pushvalue(lua, index);
  bool made = lua_pcall(lua, 1, 1, 0) == LUA_OK;
  if (made) slot->reference = static_cast<int>(lua_tointeger(lua, -1));
  lua_pop(lua, 1);
  if (!made) throw ScriptMistake("no memory left for a reference to a table or function");
  return Reference(slot);
}

Value read_value(lua_State* lua, int index) {
  switch (lua_type(lua, index)) {
    case LUA_TBOOLEAN:
      return json(lua_toboolean(lua, index) != 0);
    case LUA_TNUMBER:
      return lua_isinteger(lua, index) ? json(static_cast<int64_t>(lua_tointeger(lua, index)))
                                       : json(lua_tonumber(lua, index));
    case LUA_TSTRING: {
      size_t size;
      const char* text = lua_tolstring(lua, index, &size);
      return json(std::string(text, size));
    }
    case LUA_TUSERDATA:
      if (auto* object = object_at(lua, index)) return *object;
      return {};
    case LUA_TTABLE:
    case LUA_TFUNCTION:
      return reference_to(lua, index);
    default:
      return {};
  }
}

}  // namespace runner::lua
