#include "runner/lua/state.hpp"

#include <algorithm>

#include "runner/lua/machine.hpp"

namespace runner::lua {

using nlohmann::json;

namespace {

int push_it(lua_State* lua) {
  push_value(lua, *static_cast<const Value*>(lua_touserdata(lua, 1)));
  return 1;
}

/// Counts as a call from C++ while it exists.
class Call {
 public:
  explicit Call(Machine& machine)
      : machine_(machine), top_(lua_gettop(machine.running ? machine.running : machine.main)) {
    machine.begin_call();
    lua_ = machine.running;
    if (!lua_checkstack(lua_, 16)) throw environment_error("Lua's stack is full");
  }
  ~Call() {
    machine_.running = lua_;
    lua_settop(lua_, top_);
    machine_.end_call();
  }
  Call(const Call&) = delete;
  lua_State* lua() const { return lua_; }

  /// Calls `body` in protected mode with one argument. Its result is then on top of the stack. Throws on errors.
  void run(lua_CFunction body, const void* argument) {
    lua_pushcfunction(lua_, on_error);
    int handler = lua_gettop(lua_);
    lua_pushcfunction(lua_, body);
    lua_pushlightuserdata(lua_, const_cast<void*>(argument));
    int status = lua_pcall(lua_, 1, 1, handler);
    if (status == LUA_OK && machine_.spent == Spent::nothing) return;
    machine_.running = lua_;
    machine_.failed = true;
    if (machine_.host_failure) std::rethrow_exception(std::exchange(machine_.host_failure, nullptr));
    size_t size = 0;
    const char* text = lua_type(lua_, -1) == LUA_TSTRING ? lua_tolstring(lua_, -1, &size) : nullptr;
    throw machine_.error_of(status, text, size);
  }
  /// Puts a table or a function on top of the stack.
  void push(const Reference& it) {
    const Value value(it);
    run(push_it, &value);
  }

 private:
  /// Message handler: converts the error to text and notes its place.
  static int on_error(lua_State* lua) {
    auto& machine = Machine::of(lua);
    if (!std::exchange(machine.place_known, false)) machine.note_place(lua);
    if (machine.spent != Spent::nothing || lua_type(lua, 1) == LUA_TSTRING) return 1;
    if (luaL_getmetafield(lua, 1, "__tostring") == LUA_TNIL) {
      lua_pushfstring(lua, "error() was called with %s instead of a message", luaL_typename(lua, 1));
      return 1;
    }
    luaL_tolstring(lua, 1, nullptr);
    return 1;
  }

  Machine& machine_;
  int top_;
  lua_State* lua_ = nullptr;
};

struct Invocation {
  const Value* function;
  const std::vector<Value>* arguments;
};

int invoke(lua_State* lua) {
  const auto& invocation = *static_cast<const Invocation*>(lua_touserdata(lua, 1));
  const auto& arguments = *invocation.arguments;
  int count = static_cast<int>(arguments.size());
  luaL_checkstack(lua, count + 4, nullptr);
  push_value(lua, *invocation.function);
  for (int i = 0; i < count; ++i) push_value(lua, arguments[static_cast<size_t>(i)]);
  lua_call(lua, count, 1);
  return 1;
}

/// A file that is being loaded. Functions in `globals` are already registered.
struct Chunk {
  std::string_view text;
  std::string chunk_name;
  std::string folder;
  std::vector<std::pair<const Global*, const Registered*>> globals;
};

int run_chunk(lua_State* lua) {
  const auto& chunk = *static_cast<const Chunk*>(lua_touserdata(lua, 1));
  if (luaL_loadbufferx(lua, chunk.text.data(), chunk.text.size(), chunk.chunk_name.c_str(), "t") != LUA_OK)
    return lua_error(lua);
  push_environment(lua, chunk.folder.c_str(), chunk.chunk_name.c_str() + 1);
  for (auto item = chunk.globals.begin(); item != chunk.globals.end(); ++item) {
    if (item->second)
      push_registered(lua, item->second);
    else
      push_value(lua, item->first->value);
    lua_setfield(lua, -2, item->first->name.c_str());
  }
  lua_setupvalue(lua, -2, 1);
  lua_call(lua, 0, 1);
  return 1;
}

/// The name as Lua shortens it in messages.
std::string shortened(const std::string& name) {
  constexpr size_t room = LUA_IDSIZE - 1, dots = 3;
  return name.size() <= room ? name : "..." + name.substr(name.size() - (room - dots));
}

struct Named {
  const Value* table;
  const char* name;
};

int get_field(lua_State* lua) {
  const auto& named = *static_cast<const Named*>(lua_touserdata(lua, 1));
  push_value(lua, *named.table);
  push_behind_view(lua, -1);
  lua_pushstring(lua, named.name);
  lua_rawget(lua, -2);
  return 1;
}

int make_coroutine(lua_State* lua) {
  const auto* function = static_cast<const Value*>(lua_touserdata(lua, 1));
  lua_State* thread = lua_newthread(lua);  // inherits the debug hook
  push_value(lua, *function);
  lua_xmove(lua, thread, 1);
  return 1;
}

struct Resumption {
  const Value* coroutine;
  const Value* answer;
  bool ended = false;
};

/// Returns the coroutine's result. Raises its error here and notes the place in the coroutine.
int resume_coroutine(lua_State* lua) {
  auto& resumption = *static_cast<Resumption*>(lua_touserdata(lua, 1));
  auto& machine = Machine::of(lua);
  push_value(lua, *resumption.coroutine);
  lua_State* thread = lua_tothread(lua, -1);
  if (!lua_checkstack(thread, 4)) return luaL_error(lua, "Lua's stack is full");
  push_value(lua, *resumption.answer);
  lua_xmove(lua, thread, 1);
  int results = 0;
  machine.waited = false;
  machine.driven = machine.running = thread;
  int status = lua_resume(thread, lua, 1, &results);
  machine.running = lua;
  machine.driven = nullptr;
  if (status == LUA_OK || (status == LUA_YIELD && machine.waited && machine.spent == Spent::nothing)) {
    resumption.ended = status == LUA_OK;
    lua_settop(thread, lua_gettop(thread) - results + (results > 0 ? 1 : 0));  // keeps only the first result
    if (results == 0)
      lua_pushnil(lua);
    else
      lua_xmove(thread, lua, 1);
    return 1;
  }
  machine.note_place(thread);
  machine.place_known = true;
  if (status == LUA_YIELD) {
    lua_pushliteral(lua, "coroutine.yield() works only inside of coroutines that the script made itself");
    return lua_error(lua);
  }
  lua_xmove(thread, lua, 1);
  if (machine.spent != Spent::nothing) Machine::poison(thread);
  return lua_error(lua);
}

struct Data {
  const json* plain;
  const KeptObjects* objects;
};

int make_table(lua_State* lua) {
  const auto& data = *static_cast<const Data*>(lua_touserdata(lua, 1));
  push_json(lua, *data.plain, data.objects);
  return 1;
}
int make_read_only_table(lua_State* lua) {
  push_read_only_json(lua, *static_cast<const json*>(lua_touserdata(lua, 1)));
  return 1;
}

int open_all(lua_State* lua) {
  keep_spent_messages(lua);
  open_libraries(lua);
  return 0;
}

}  // namespace

Value run_text(Machine& machine, std::string_view text, const std::string& name, const std::string& folder,
               const std::vector<Global>& globals) {
  Chunk chunk{text, "@" + name, folder, {}};
  for (const auto& global : globals)
    chunk.globals.emplace_back(&global, global.function ? machine.add(global.name, global.function, false) : nullptr);
  machine.chunks[shortened(name)] = name;
  Call call(machine);
  if (text.starts_with(LUA_SIGNATURE[0]))
    throw LuaError(ErrorKind::script, name, 0, "this is bytecode; only source text is loaded", "");
  call.run(run_chunk, &chunk);
  return read_value(call.lua(), -1);
}

State::State(StateOptions options) : machine_(std::make_unique<Machine>(std::move(options))) {
  {
    Call call(*machine_);
    call.run(open_all, nullptr);
  }
  machine_->limited = machine_->opened = true;
}

State::~State() = default;

Value State::load_file(const fs::path& path, const std::string& name, const std::vector<Global>& globals) {
  auto folder = fs::absolute(path).lexically_normal().parent_path();
  return load_text(read_file(path), name.empty() ? path.string() : name, folder, globals);
}

Value State::load_text(const std::string& text, const std::string& name, const fs::path& folder,
                       const std::vector<Global>& globals) {
  return run_text(*machine_, text, name, folder.string(), globals);
}

Value State::call(const Reference& function, const std::vector<Value>& arguments) {
  RUNNER_CHECK(function.is_function(), "State::call() needs a function");
  Value called(function);
  Invocation invocation{&called, &arguments};
  Call call(*machine_);
  call.run(invoke, &invocation);
  return read_value(call.lua(), -1);
}

void State::seed(uint64_t seed) {
  Call call(*machine_);
  call.run(seed_random, &seed);
}

Reference State::coroutine(const Reference& function) {
  RUNNER_CHECK(function.is_function(), "State::coroutine() needs a function");
  Value body(function);
  Call call(*machine_);
  call.run(make_coroutine, &body);
  return reference_to(call.lua(), -1);
}

State::Resumed State::resume(const Reference& coroutine, const Value& answer) {
  RUNNER_CHECK(coroutine.is_coroutine(), "State::resume() needs a coroutine");
  Value resumed(coroutine);
  Resumption resumption{&resumed, &answer};
  Call call(*machine_);
  call.run(resume_coroutine, &resumption);
  return {resumption.ended, read_value(call.lua(), -1)};
}

Value State::field(const Reference& table, const std::string& name) {
  RUNNER_CHECK(table.is_table(), "State::field() needs a table");
  Value holder(table);
  Named named{&holder, name.c_str()};
  Call call(*machine_);
  call.run(get_field, &named);
  return read_value(call.lua(), -1);
}

std::vector<std::string> State::keys(const Reference& table) {
  RUNNER_CHECK(table.is_table(), "State::keys() needs a table");
  Call call(*machine_);
  call.push(table);
  lua_State* lua = call.lua();
  push_behind_view(lua, -1);
  std::vector<std::string> names;
  lua_pushnil(lua);
  while (lua_next(lua, -2)) {
    if (lua_type(lua, -2) == LUA_TSTRING) names.emplace_back(lua_tostring(lua, -2), lua_rawlen(lua, -2));
    lua_pop(lua, 1);
  }
  std::sort(names.begin(), names.end());
  return names;
}

int State::line_of(const Reference& function) {
  RUNNER_CHECK(function.is_function(), "State::line_of() needs a function");
  Call call(*machine_);
  call.push(function);
  lua_Debug info;
  lua_getinfo(call.lua(), ">S", &info);
  lua_pushnil(call.lua());  // replaces the function, which lua_getinfo popped
  return std::max(0, info.linedefined);
}

namespace {

int append_code(lua_State*, const void* piece, size_t size, void* code) noexcept {
  try {
    static_cast<std::string*>(code)->append(static_cast<const char*>(piece), size);
    return 0;
  } catch (...) {
    return 1;
  }
}

/// The code of the function on top of the stack.
std::string dumped(lua_State* lua) {
  std::string code;
  if (lua_dump(lua, append_code, &code, /*strip=*/0) != 0) code.clear();
  return code;
}

int compile_chunk(lua_State* lua) {
  const auto& chunk = *static_cast<const Chunk*>(lua_touserdata(lua, 1));
  if (luaL_loadbufferx(lua, chunk.text.data(), chunk.text.size(), chunk.chunk_name.c_str(), "t") != LUA_OK)
    return lua_error(lua);
  return 1;
}

}  // namespace

std::string State::bytecode(const Reference& function) {
  RUNNER_CHECK(function.is_function(), "State::bytecode() needs a function");
  Call call(*machine_);
  call.push(function);
  return dumped(call.lua());
}

Value State::upvalue(const Reference& function, int number) {
  RUNNER_CHECK(function.is_function(), "State::upvalue() needs a function");
  Call call(*machine_);
  call.push(function);
  return lua_getupvalue(call.lua(), -1, number + 1) ? read_value(call.lua(), -1) : Value();
}

std::string State::bytecode_of(const std::string& text, const std::string& name) {
  const Chunk chunk{text, "@" + name, "", {}};
  Call call(*machine_);
  call.run(compile_chunk, &chunk);
  return dumped(call.lua());
}

json State::to_json(const Reference& table, const std::string& what, const KeepObject& keep, Strings strings) {
  RUNNER_CHECK(table.is_table(), "State::to_json() needs a table");
  Call call(*machine_);
  call.push(table);
  return json_at(call.lua(), -1, what, &keep, strings);
}

Reference State::table(const json& data, const KeptObjects& objects) {
  Data argument{&data, &objects};
  Call call(*machine_);
  call.run(make_table, &argument);
  return read_value(call.lua(), -1).reference;
}

Reference State::read_only(const json& data) {
  Call call(*machine_);
  call.run(make_read_only_table, &data);
  return read_value(call.lua(), -1).reference;
}

void State::collect_garbage() { lua_gc(machine_->running ? machine_->running : machine_->main, LUA_GCCOLLECT); }
size_t State::memory_bytes() const { return machine_->used; }
int64_t State::instructions_used() const { return machine_->instructions; }

}  // namespace runner::lua
