#include "runner/logging/run_log.hpp"

#include <unistd.h>

#include <mutex>
#include <optional>

#include "runner/base/child_process.hpp"
#include "runner/base/clock.hpp"
#include "runner/base/log.hpp"
#include "runner/base/log_heading.hpp"
#include "runner/launch/rank_logs.hpp"

namespace runner {

struct RunLog::Lines {
  std::mutex mutex;     ///< any thread may print; guards what follows
  std::string waiting;  ///< printed before the first attempt
  std::optional<ChildLog> log;
  Descriptor file;
  int64_t unchecked = 0;  ///< bytes since the log's size was looked at

  void add(const std::string& text) {
    constexpr int64_t bytes_max = int64_t{64} << 20, look_every = 1 << 20;
    const std::lock_guard lock(mutex);
    if (!file.is_open()) {
      waiting += text + "\n";
      return;
    }
    const std::string line = text + "\n";
    [[maybe_unused]] const ssize_t written = ::write(file.get(), line.data(), line.size());
    unchecked += std::ssize(line);
    if (unchecked > look_every) {
      log->bound(bytes_max);
      unchecked = 0;
    }
  }
};

RunLog::RunLog() : lines_(std::make_shared<Lines>()) {
  log::set_copy([lines = lines_](const std::string& line) { lines->add(line); });
}

RunLog::~RunLog() { log::set_copy(nullptr); }

void RunLog::begin(const AttemptStart& attempt) {
  const auto attempts = attempt.ledger.attempts(attempt.run);
  const std::string number = std::to_string(attempts.empty() ? 1 : attempts.rbegin()->first);
  const fs::path path = run_log(attempt.folder);
  std::error_code ignored;  // the log reports it
  fs::create_directories(path.parent_path(), ignored);
  ChildLog log(path.string(), log_heading(number, format_time(wall_seconds())));
  Descriptor file = log.take();
  const std::lock_guard lock(lines_->mutex);
  lines_->log.emplace(std::move(log));
  lines_->file = std::move(file);
  [[maybe_unused]] const ssize_t written = ::write(lines_->file.get(), lines_->waiting.data(), lines_->waiting.size());
  lines_->waiting.clear();
}

}  // namespace runner
