// The only writer of a process: queues changes, and a background thread commits them together.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runner/ledger/batch.hpp"

namespace runner {

/// If a commit fails, its changes stay in the queue and are tried again with the next batch, so a full disk does not
/// stop the training. One warning is logged when this begins, and one message when it ends.
class Writer {
 public:
  using Change = std::function<void(Batch&)>;

  explicit Writer(sqlite::Database database);
  ~Writer();  ///< commits the queued changes
  Writer(const Writer&) = delete;

  /// Commits `change` within half a second.
  void queue(Change change);
  /// Commits `change` and everything queued before it at once, so that it survives a power failure, and then calls
  /// `done` on the writer's thread. `done` is also called if the commit fails, so that its caller does not wait for a
  /// full disk.
  void settle(Change change, std::function<void()> done);
  /// Commits everything queued and then `change`, in one transaction that survives a power failure. Rethrows a failure;
  /// `change` is then discarded, and the queue is unchanged. If the file cannot be written, tries again for `patience`.
  void commit(const Change& change, std::chrono::seconds patience = {});

 private:
  void loop();
  /// Runs one transaction. `synchronous` is SQLite's setting: with FULL, a commit survives a power failure; with
  /// NORMAL, a power failure may lose the last commits.
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
  bool failing_ = false;  ///< used only by thread_
  std::thread thread_;
};

}  // namespace runner
