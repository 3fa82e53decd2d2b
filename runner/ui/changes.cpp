#include "runner/ui/changes.hpp"

#include "runner/base/blocked_signals.hpp"
#include "runner/base/clock.hpp"
#include "runner/base/json_text.hpp"

namespace runner::ui {

using nlohmann::json;

namespace {

constexpr size_t kept_messages = 64;
constexpr double mark_lost_every_s = 5;
constexpr double keep_alive_s = 10;
constexpr const char* reload_event = "event: reload\ndata: {}\n\n";

/// Counts a listener as long as its stream exists.
struct Listening {
  explicit Listening(std::atomic<size_t>& listeners) : count(listeners) { ++count; }
  ~Listening() { --count; }
  Listening(const Listening&) = delete;
  std::atomic<size_t>& count;
};

}  // namespace

Changes::Changes(Readers& readers) : readers_(readers) {
  const BlockedSignals blocked;
  thread_ = std::thread([this] { watch(); });
}

Changes::~Changes() {
  stop();
  thread_.join();
}

void Changes::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
}

std::function<bool(std::string&)> Changes::stream() {
  auto listening = std::make_shared<Listening>(listeners_);
  int64_t last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = number_;
    wake_.notify_all();
  }
  double spoke = 0;
  return [this, listening, last, spoke](std::string& chunk) mutable {
    std::unique_lock lock(mutex_);
    if (stopping_) return false;
    if (spoke == 0) {
      spoke = steady_seconds();
      chunk = "retry: 2000\nevent: hello\ndata: {}\n\n";
      return true;
    }
    wake_.wait_for(lock, std::chrono::milliseconds(500), [&] { return stopping_ || number_ > last; });
    if (stopping_) return false;
    if (number_ > last) {
      // A page that was asleep for so long that messages are missing loads everything again.
      if (messages_.empty() || messages_.front().first > last + 1) chunk += reload_event;
      for (const auto& [number, text] : messages_)
        if (number > last) chunk += text;
      last = number_;
    } else if (steady_seconds() - spoke > keep_alive_s) {
      chunk = ": still here\n\n";
    }
    if (!chunk.empty()) spoke = steady_seconds();
    return true;
  };
}

void Changes::read_runs(std::map<int64_t, Seen>& runs) {
  auto rows = database_->query(
      "SELECT run, id, status, steps, name || char(10) || tags || char(10) || notes || char(10) || grp || (archived IS "
      "NOT NULL) || (deleted IS NOT NULL) FROM run");
  while (rows.step())
    runs[rows.integer(0)] = {
        .id = rows.text(1), .status = rows.text(2), .steps = rows.integer(3), .rest = rows.text(4)};
}

json Changes::compare() {
  std::map<int64_t, Seen> runs;
  read_runs(runs);
  const std::string sweeps = database_->text(
      "SELECT ifnull(group_concat(status || ended), '') || (SELECT count(*) || ':' || ifnull(sum(length(status)), 0) "
      "|| ':' || count(objective) FROM trial) FROM sweep");
  json changed = json::array(), added = json::array(), removed = json::array();
  for (const auto& [row, seen] : runs) {
    const auto before = runs_.find(row);
    if (before == runs_.end())
      added.push_back(seen.id);
    else if (!(before->second == seen))
      changed.push_back({{"id", seen.id}, {"status", seen.status}, {"steps", seen.steps}});
  }
  for (const auto& [row, seen] : runs_)
    if (!runs.contains(row)) removed.push_back(seen.id);
  const bool of_sweeps = sweeps != sweeps_;
  runs_ = std::move(runs);
  sweeps_ = sweeps;
  if (changed.empty() && added.empty() && removed.empty() && !of_sweeps) return nullptr;
  return {{"runs", changed}, {"new", added}, {"removed", removed}, {"sweeps", of_sweeps}};
}

std::string Changes::look() {
  const bool first = !looked_, had_ledger = database_ != nullptr;
  looked_ = true;
  if (database_ && database_->moved()) database_.reset();
  const bool same_file = database_ != nullptr;
  if (!database_) {
    database_ = readers_.open();
    data_version_ = -1;
    if (!database_) return had_ledger ? reload_event : "";
  }
  const int64_t version = database_->integer("PRAGMA data_version");
  if (version == data_version_) return "";
  data_version_ = version;
  const json changed = compare();
  if (first) return "";  // what pages show was read after that
  if (!same_file) return reload_event;
  return changed.is_null() ? "" : "event: change\ndata: " + json_text(changed) + "\n\n";
}

void Changes::watch() {
  double marked = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, std::chrono::seconds(1), [this] { return stopping_.load(); });
      if (!stopping_ && listeners_ == 0) wake_.wait(lock, [this] { return stopping_ || listeners_ > 0; });
      if (stopping_) return;
    }
    try {
      if (steady_seconds() - marked > mark_lost_every_s) {
        marked = steady_seconds();
        if (std::filesystem::exists(readers_.home() / "ledger.db"))
          Ledger(readers_.home().string(), Ledger::Mode::read);
      }
      if (std::string event = look(); !event.empty()) {
        const std::lock_guard lock(mutex_);
        messages_.emplace_back(++number_, std::move(event));
        if (messages_.size() > kept_messages) messages_.pop_front();
        wake_.notify_all();
      }
    } catch (const std::exception&) {
      database_.reset();  // the file is damaged, or is locked for long: the next second tries again
    }
  }
}

}  // namespace runner::ui
