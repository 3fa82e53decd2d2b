// Errors in Lua: their place, message, call stack, and whether they come from a spent budget.
#pragma once
#include <string>

#include "runner/base/error.hpp"

namespace runner::lua {

enum class ErrorKind { script, instructions, time, memory };

/// "script", "instructions", "time", "memory".
const char* name(ErrorKind kind);

/// what() is "hooks/a.lua:3: message", followed by one line for each caller.
class LuaError : public Error {
 public:
  LuaError(ErrorKind kind, std::string file, int line, std::string message, std::string trace);

  ErrorKind kind() const { return kind_; }
  const std::string& file() const { return file_; }        ///< the name under which it was loaded; empty if unknown
  int line() const { return line_; }                       ///< 1-based; 0 if unknown
  const std::string& message() const { return message_; }  ///< without file and line
  const std::string& trace() const { return trace_; }      ///< "  called from a.lua:10, function `f`\n" ...

 private:
  ErrorKind kind_;
  std::string file_;
  int line_;
  std::string message_, trace_;
};

/// Registered functions throw it for a mistake of the script. It becomes a Lua error at the line of the call, which the
/// script may catch. Any other exception stops the script, and State::call() throws it unchanged.
class ScriptMistake : public Error {
 public:
  explicit ScriptMistake(const std::string& message) : Error(ExitCode::usage, message) {}
};

}  // namespace runner::lua
