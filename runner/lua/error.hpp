// What goes wrong in Lua: where, what, the calls that led there, and whether a budget was spent.
#pragma once
#include <string>

#include "runner/base/error.hpp"

namespace runner::lua {

enum class ErrorKind { script, instructions, time, memory };

/// "script", "instructions", "time", "memory".
const char* name(ErrorKind kind);

/// what(): "hooks/a.lua:3: message" and, on lines of their own, the calls that led there.
class LuaError : public Error {
 public:
  LuaError(ErrorKind kind, std::string file, int line, std::string message, std::string trace);

  ErrorKind kind() const { return kind_; }
  const std::string& file() const { return file_; }        ///< as it was loaded; empty where none is known
  int line() const { return line_; }                       ///< 1-based; 0 where none is known
  const std::string& message() const { return message_; }  ///< without the place
  const std::string& trace() const { return trace_; }      ///< "  called from a.lua:10, function `f`\n" ...

 private:
  ErrorKind kind_;
  std::string file_;
  int line_;
  std::string message_, trace_;
};

/// What a registered function throws when the script asks for something wrong: becomes a Lua error at the place of the
/// call, which the script may catch. Any other exception stops the script for good and leaves State::call() unchanged.
class ScriptMistake : public Error {
 public:
  explicit ScriptMistake(const std::string& message) : Error(ExitCode::usage, message) {}
};

}  // namespace runner::lua
