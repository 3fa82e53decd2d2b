// The one writer of a process: changes wait in a queue and are committed together by a background thread.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runner/ledger/batch.hpp"

namespace runner {

/// A change that fails stays queued with everything behind it and is tried again with the next batch; training never
/// stops for a full disk. One warning says so, and one message that it is over.
class Writer {
 public:
  using Change = std::function<void(Batch&)>;

  explicit Writer(sqlite::Database database);
  ~Writer();  ///< commits what is queued
  Writer(const Writer&) = delete;

  /// Commits `change` at most half a second from now.
  void queue(Change change);
  /// Commits `change` and everything queued before it now, so that it survives a power failure, and calls `done` on the
  /// thread of this writer. Where that fails, `done` is called all the same: what waits for it must not wait for a
  /// disk.
  void settle(Change change, std::function<void()> done);
  /// Commits everything queued and then `change`, in one transaction that survives a power failure. Throws what went
  /// wrong; `change` then did not happen, and the queue is as it was.
  void commit(const Change& change);

 private:
  void loop();
  /// The transaction itself. `synchronous` is SQLite's: FULL survives a power failure; NORMAL may lose its last commits
  /// then.
  void write(const Change* last, const char* synchronous);
  void write_in_background();

  sqlite::Database database_;
  Batch batch_;
  const char* background_synchronous_;
  std::mutex transaction_mutex_;  ///< guards database_ and batch_; taken before queue_mutex_
  std::mutex queue_mutex_;
  std::condition_variable wake_;
  std::vector<Change> queue_;
  std::vector<std::function<void()>> settling_;  ///< to be called after the next attempt to commit
  bool stop_ = false;
  bool failing_ = false;  ///< only the thread's
  std::thread thread_;
};

}  // namespace runner
