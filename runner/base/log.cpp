#include "runner/base/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <string_view>

#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"

namespace runner::log {

namespace {

void (*before_line)() = nullptr;
void (*after_line)() = nullptr;
std::mutex copy_mutex;
std::function<void(const std::string&)> copy_line;  ///< guarded by copy_mutex

spdlog::level::level_enum spdlog_level(Level level) {
  if (level == Level::info) return spdlog::level::info;
  return level == Level::warning ? spdlog::level::warn : spdlog::level::err;
}

/// Plain messages for info; a coloured word in front of the others.
spdlog::logger& logger() {
  static auto instance = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(color() ? spdlog::color_mode::always
                                                                              : spdlog::color_mode::never);
    auto made = std::make_shared<spdlog::logger>("runner", sink);
    made->flush_on(spdlog::level::trace);
    const char* named = std::getenv("RUNNER_LOG");
    const std::string wanted = named && *named ? named : "info";
    if (wanted == "warning") made->set_level(spdlog::level::warn);
    if (wanted == "error") made->set_level(spdlog::level::err);
    if (wanted == "info" || wanted == "warning" || wanted == "error") return made;
    made->set_pattern("%^%l:%$ %v");
    made->warn("RUNNER_LOG=\"{}\" is no level of messages: it is info, warning or error", escape_invalid_utf8(wanted));
    return made;
  }();
  return *instance;
}

}  // namespace

bool color() {
  static const bool answer = [] {
    const char* no_color = std::getenv("NO_COLOR");
    const char* term = std::getenv("TERM");
    return isatty(STDERR_FILENO) && !(no_color && *no_color) && term && std::string_view(term) != "dumb";
  }();
  return answer;
}

void set_interleave(void (*before)(), void (*after)()) {
  before_line = before;
  after_line = after;
}

void set_copy(std::function<void(const std::string&)> take) {
  const std::lock_guard lock(copy_mutex);
  copy_line = std::move(take);
}

void copy(const std::string& line) {
  const std::lock_guard lock(copy_mutex);
  if (copy_line) copy_line(line);
}

void write(Level level, const std::string& message) {
  copy((level == Level::error ? "error: " : level == Level::warning ? "warning: " : "") + message);
  if (!logger().should_log(spdlog_level(level))) return;
  if (before_line) before_line();
  logger().set_pattern(level == Level::info ? "%v" : "%^%l:%$ %v");
  logger().log(spdlog_level(level), terminal_text(message));
  if (after_line) after_line();
}

}  // namespace runner::log
