#include "runner/lua/error.hpp"

namespace runner::lua {

namespace {

std::string whole(const std::string& file, int line, const std::string& message, const std::string& trace) {
  std::string text = file.empty() ? message
                     : line > 0   ? fmt::format("{}:{}: {}", file, line, message)
                                  : file + ": " + message;
  if (!trace.empty()) text += "\n" + trace.substr(0, trace.find_last_not_of('\n') + 1);
  return text;
}

}  // namespace

const char* name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::script:
      return "script";
    case ErrorKind::instructions:
      return "instructions";
    case ErrorKind::time:
      return "time";
    case ErrorKind::memory:
      return "memory";
  }
  return "";
}

LuaError::LuaError(ErrorKind kind, std::string file, int line, std::string message, std::string trace)
    : Error(ExitCode::usage, whole(file, line, message, trace)),
      kind_(kind),
      file_(std::move(file)),
      line_(line),
      message_(std::move(message)),
      trace_(std::move(trace)) {}

}  // namespace runner::lua
