#include "runner/lua/machine.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runner/base/clock.hpp"
#include "runner/base/descriptor.hpp"
#include "runner/base/text.hpp"

namespace runner::lua {

namespace {

const char spent_messages[4][80] = {"", "the budget of instructions is spent", "the budget of time is spent",
                                    "stopped by the program"};

/// Appends to a fixed buffer, which truncates the text.
template <size_t N>
void append(std::array<char, N>& buffer, const char* text) {
  size_t used = std::strlen(buffer.data());
  std::snprintf(buffer.data() + used, N - used, "%s", text);
}

}  // namespace

State::Machine::Machine(StateOptions chosen) : options(std::move(chosen)) {
  string_limit = std::max<size_t>(options.limits.memory_bytes / 64, 64 << 10);
  main = lua_newstate(allocate, this);
  if (!main) throw environment_error("no memory for a Lua state");
  *static_cast<Machine**>(lua_getextraspace(main)) = this;
  life = std::make_shared<Machine*>(this);
}

State::Machine::~Machine() {
  modules.clear();
  *life = nullptr;
  running = nullptr;
  limited = false;
  lua_close(main);
}

void* State::Machine::allocate(void* self, void* block, size_t old_size, size_t new_size) {
  auto& machine = *static_cast<Machine*>(self);
  size_t held = block ? old_size : 0;  // for new blocks, old_size is the type of the object
  if (new_size == 0) {
    std::free(block);
    machine.used -= held;
    return nullptr;
  }
  if (machine.limited && new_size > held) {
    bool too_long = !block && old_size == LUA_TSTRING && new_size > machine.string_limit + 64;
    if (too_long || machine.used - held + new_size > machine.options.limits.memory_bytes) {
      if (machine.running) machine.note_place(machine.running);
      return nullptr;
    }
    machine.allocated += new_size - held;
    // Long-running operations on large strings execute few instructions. Lets the hook check soon. lua_sethook may be
    // called anywhere.
    if (machine.allocated > bytes_between_checks && machine.running)
      lua_sethook(machine.running, hook, machine.hook_events(), 1);
  }
  void* moved = std::realloc(block, new_size);
  if (moved) machine.used += new_size - held;
  return moved;
}

void State::Machine::note_line(const lua_Debug& frame) noexcept {
  try {
    if (!noted_lines.emplace(frame.source, frame.currentline).second) return;
    const std::string text = fmt::format("{}:{}\n", frame.source + 1, frame.currentline);
    const Descriptor file(::open(options.lines_file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
    if (file.get() >= 0) (void)!::write(file.get(), text.data(), text.size());
  } catch (...) {  // a line that is not noted is told as one that never ran
  }
}

void State::Machine::hook(lua_State* lua, lua_Debug* event) {
  auto& machine = of(lua);
  if (event->event == LUA_HOOKLINE) {
    lua_getinfo(lua, "Sl", event);
    return machine.note_line(*event);
  }
  int count = lua_gethookcount(lua);
  machine.instructions += count;
  machine.check(lua);
  if (count != hook_interval) lua_sethook(lua, hook, machine.hook_events(), hook_interval);
}

void State::Machine::check(lua_State* lua) {
  instructions += c_steps + static_cast<int64_t>(allocated / bytes_per_instruction);
  c_steps = 0;
  allocated = 0;
  if (opened && spent == Spent::nothing) {
    if (instructions > options.limits.instructions)
      spent = Spent::instructions;
    else if (steady_seconds() - started - excluded > options.limits.seconds)
      spent = Spent::time;
  }
  raise_if_spent(lua);
}

void State::Machine::raise_spent(lua_State* lua) {
  lua_sethook(lua, hook, hook_events(), 1);  // code that catches this error can execute one instruction only
  lua_rawgetp(lua, LUA_REGISTRYINDEX, spent_messages[static_cast<int>(spent)]);  // allocates nothing
  lua_error(lua);
  std::abort();  // lua_error does not return, but is not declared so
}

void State::Machine::note_failure() noexcept {
  try {
    throw;
  } catch (const ScriptMistake& mistake) {
    failure = mistake.what();
  } catch (const LuaError& error) {  // from a nested call: its text already contains the place
    failure = error.what();
  } catch (const std::exception& error) {
    failure = options.mistake_of ? options.mistake_of(error) : "";
    if (failure.empty()) host_failed();
  } catch (...) {
    host_failed();
  }
}

void State::Machine::host_failed() noexcept {
  host_failure = std::current_exception();
  spent = Spent::host;
}

void State::Machine::begin_call() {
  if (depth++ > 0) {
    resume_clock();
    return;
  }
  spent = Spent::nothing;
  instructions = c_steps = 0;
  allocated = 0;
  started = steady_seconds();
  excluded = 0;
  host_failure = nullptr;
  running = main;
  lua_sethook(main, hook, hook_events(), hook_interval);
}

void State::Machine::end_call() {
  if (--depth > 0) {
    pause_clock();
    return;
  }
  instructions += c_steps + static_cast<int64_t>(allocated / bytes_per_instruction);
  if (failed && used > options.limits.memory_bytes / 2) lua_gc(main, LUA_GCCOLLECT);  // frees what the failed call left
  failed = false;
}

void State::Machine::pause_clock() { paused_at = steady_seconds(); }
void State::Machine::resume_clock() { excluded += steady_seconds() - paused_at; }

/// Neither allocates nor raises: it is also called when there is no memory left.
void State::Machine::note_place(lua_State* lua) {
  constexpr int shown = 10;
  place_file[0] = '\0';
  place_line = 0;
  trace[0] = '\0';
  lua_Debug frame;
  int count = 0;
  for (int level = 0; lua_getstack(lua, level, &frame); ++level) {
    if (count > 200) break;
    lua_getinfo(lua, "Sln", &frame);
    if (frame.currentline < 1 || (frame.source[0] != '@' && frame.source[0] != '=')) continue;
    std::array<char, 600> line{};
    if (count == 0) {
      std::snprintf(place_file.data(), place_file.size(), "%s", frame.source + 1);
      place_line = frame.currentline;
      if (frame.name) std::snprintf(line.data(), line.size(), "  in function `%s`\n", frame.name);
    } else if (count < shown) {
      std::snprintf(line.data(), line.size(),
                    frame.name ? "  called from %s:%d, function `%s`\n" : "  called from %s:%d\n", frame.source + 1,
                    frame.currentline, frame.name);
    } else if (count == shown) {
      std::snprintf(line.data(), line.size(), "  and so on\n");
    }
    append(trace, line.data());
    ++count;
  }
}

LuaError State::Machine::error_of(int status, const char* message, size_t size) const {
  std::string text(message ? std::string_view(message, size) : "an error without a message");
  const auto& limits = options.limits;
  if (spent == Spent::instructions)
    return {ErrorKind::instructions, place_file.data(), place_line,
            fmt::format("took more than {} Lua instructions", limits.instructions), trace.data()};
  if (spent == Spent::time)
    return {ErrorKind::time, place_file.data(), place_line, fmt::format("took more than {} s", limits.seconds),
            trace.data()};
  if (status == LUA_ERRMEM || text == "not enough memory")  // the text comes from buffers of the standard library
    return {ErrorKind::memory, place_file.data(), place_line,
            fmt::format("needs more memory than {}, or a string longer than {}", format_bytes(limits.memory_bytes),
                        format_bytes(string_limit)),
            trace.data()};
  if (text.starts_with(no_place)) text.erase(0, no_place.size());
  // If the message has the form "short name:line: message", uses this place, which Lua or error() added.
  for (const auto& [shortened, name] : chunks) {
    if (!text.starts_with(shortened + ":")) continue;
    auto digits = text.find_first_not_of("0123456789", shortened.size() + 1);
    if (digits == std::string::npos || digits == shortened.size() + 1 || !text.substr(digits).starts_with(": "))
      continue;
    int line = std::atoi(text.c_str() + shortened.size() + 1);
    return {ErrorKind::script, name, line, text.substr(digits + 2), trace.data()};
  }
  return {ErrorKind::script, place_file.data(), place_line, text, trace.data()};
}

const Registered* State::Machine::add(std::string name, Function body, bool method, bool waits) {
  functions.push_back({std::move(name), std::move(body), method, waits});
  return &functions.back();
}

void keep_spent_messages(lua_State* lua) {
  for (const auto& message : spent_messages) {
    lua_pushstring(lua, message);
    lua_rawsetp(lua, LUA_REGISTRYINDEX, message);
  }
}

}  // namespace runner::lua
