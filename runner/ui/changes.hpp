// Watches the ledger, and tells open pages what has changed.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "runner/ui/readers.hpp"

namespace runner::ui {

/// While a page listens, a thread asks SQLite once a second whether the file has changed, and compares the rows of runs only then. It
/// also marks runs as lost whose process is gone.
class Changes {
 public:
  explicit Changes(Readers& readers);
  ~Changes();

  /// The answer that stays open: server-sent events (WHATWG HTML, "Server-sent events"). `change`: {"runs": [{id, status, steps}],
  /// "new": [id], "removed": [id], "sweeps": bool}. `reload`: what has changed is not known, for example because the ledger's file is
  /// another one now.
  std::function<bool(std::string&)> stream();
  /// Ends all streams.
  void stop();
  size_t listeners() const { return listeners_; }

 private:
  struct Seen {
    std::string id, status;
    int64_t steps = 0;
    std::string rest;  ///< what an edit changes
    bool operator==(const Seen&) const = default;
  };
  void watch();
  /// The event about what has changed since the last call; empty if nothing has.
  std::string look();
  nlohmann::json compare();  ///< null if nothing has changed
  void read_runs(std::map<int64_t, Seen>& runs);

  Readers& readers_;
  std::atomic<bool> stopping_ = false;
  std::atomic<size_t> listeners_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::pair<int64_t, std::string>> messages_;  ///< number and event, the newest last
  int64_t number_ = 0;
  int64_t data_version_ = -1;
  std::string sweeps_;
  bool looked_ = false;
  std::map<int64_t, Seen> runs_;
  std::unique_ptr<sqlite::Database> database_;  ///< data_version compares reads of one connection
  std::thread thread_;
};

}  // namespace runner::ui
