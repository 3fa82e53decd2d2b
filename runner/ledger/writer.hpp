// The only writer of a process: queues changes, and a background thread commits them together.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runner/ledger/batch.hpp"

namespace runner {

/// If a commit fails, its changes stay in the queue and are tried again with the next batch, so a full disk does not
/// stop the training. If the failure is one that lasts and a run is guarded, the run's record goes on in a spool beside the run
/// (spool.hpp), which is added to the ledger as soon as it can be written again, at the latest by a later command. One warning is
/// logged when this begins, and one message when it ends.
class Writer {
 public:
  using Change = std::function<void(Batch&)>;

  /// `home`: the ledger's folder.
  Writer(const std::filesystem::path& home, std::unique_ptr<sqlite::Database> database);
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
  /// From now on, another process that has locked the ledger counts as a failure that lasts after a second, also for a commit that
  /// waits for it already: whoever has stopped this process may kill it soon.
  void hurry();
  /// From now on, the run with this row number may have a spool in its folder. Called again for each attempt.
  void guard(int64_t run, const std::filesystem::path& folder);
  void guard_again() { guard(guarded_, folder_); }
  /// The file that is written now: the ledger, or a spool. Does not wait for a transaction.
  std::filesystem::path file() const;

 private:
  void loop();
  enum class Survives { kill, power_failure };  ///< a power failure may lose the last commits of the former
  /// Runs one transaction.
  void write(const Change* last, Survives what);
  void write_once(const Change* last, Survives what);  ///< with transaction_mutex_ held
  void write_in_background();
  /// The next four are called with transaction_mutex_ held.
  void use(std::unique_ptr<sqlite::Database> database);
  /// Throws Failure if the ledger's file was deleted, replaced or damaged.
  void check_file(bool now);
  /// Begins a spool after a failure that lasts. Returns whether there is one now.
  bool begin_spool(const sqlite::Failure& failure);
  /// Adds the spool to the ledger if that can be written again.
  void end_spool();

  const std::filesystem::path home_;
  std::unique_ptr<sqlite::Database> database_;
  std::unique_ptr<Batch> batch_;
  const char* synchronous_ = "FULL";        ///< SQLite's setting for commits that survive a kill
  mutable std::mutex transaction_mutex_;    ///< guards the members above and below; taken before queue_mutex_
  int64_t guarded_ = 0;                     ///< row number; 0: no run
  std::filesystem::path folder_;            ///< of the guarded run
  std::unique_ptr<sqlite::Database> seed_;  ///< of the guarded run's spool
  bool spooling_ = false;
  mutable std::mutex
      place_mutex_;  ///< guards database_ while it is replaced; the next two can be used during a transaction
  std::filesystem::path file_;         ///< database_->path()
  std::atomic<bool> hurried_ = false;  ///< see hurry()
  double checked_ = 0;                 ///< when the file was last looked at, steady_seconds()
  double tried_ = 0;                   ///< when a spool was last begun or ended in vain, steady_seconds()
  std::mutex queue_mutex_;
  std::condition_variable wake_;
  std::vector<Change> queue_;
  std::vector<std::function<void()>> settling_;  ///< to be called after the next attempt to commit
  bool stop_ = false;
  bool failing_ = false;  ///< used only by thread_
  std::thread thread_;
};

}  // namespace runner
