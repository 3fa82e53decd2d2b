// The only writer of a process: queues changes, and a background thread commits them together, as batches.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runner/base/clock.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/sqlite.hpp"

namespace runner {

/// The row numbers of a run and of this process's attempt. Attempt 0: this process does not run it, it only adds
/// records to a run that has ended.
struct Lease {
  int64_t run = 0;
  int64_t attempt = 0;
  double begun = steady_seconds();  ///< of the attempt
};

/// The changes that one write transaction makes to the tables of a run: points, events, artifacts, heartbeats. Not thread-safe.
class Batch {
 public:
  explicit Batch(sqlite::Database& database);

  /// Whether this process may write to the run: `lease` is the run's newest attempt, or attempt 0. Otherwise another
  /// process has resumed the run, and the changes below do nothing.
  bool owns(const Lease& lease);
  void points(const Lease& lease, double now, const std::vector<MetricPoint>& points);
  void system_samples(const Lease& lease, double now, const std::vector<std::pair<std::string, double>>& values);
  /// The common part of events and artifacts.
  struct Record {
    std::string kind, fields;     ///< `fields`: a JSON object
    int64_t step = 0;             ///< raises the run's step count to at least this
    std::optional<double> saved;  ///< the newest snapshot before this record, as in Ledger::event()
  };
  void event(const Lease& lease, double now, const Record& record);
  void artifact(const Lease& lease, double now, const Record& record, const std::string& path);
  /// Deletes all points after `step` and those of the end of an earlier training, and the events and artifacts that
  /// were recorded after the snapshot of `step`, because they will be produced again. Checkpoints up to `step` stay.
  /// `completed`: as in Ledger::begin_attempt().
  void rewind(int64_t run, int64_t step, bool completed);
  /// Records that the run was alive at `now` and had reached `step`.
  void touch(const Lease& lease, double now, int64_t step = 0);

  /// Called before the commit. Writes what is updated once for each batch: heartbeats, steps, and metric_last of points
  /// that came out of order. A run that was marked as lost but still reports gets the status `running` again.
  void close();
  /// Called after a commit.
  void committed();
  /// Called after a rollback: discards what was cached during the transaction.
  void rolled_back();

  sqlite::Database& database() { return database_; }

 private:
  struct Activity {
    double time = 0;
    int64_t step = 0;
  };

  int64_t key(const std::string& name);
  /// Deletes the points of the end of the run's earlier training, and restores the points that they replaced.
  void forget_end(int64_t run);
  /// Recomputes metric_last of one key (key = 0: of all keys) from the points.
  void refresh_last(int64_t run, int64_t key);
  void forget();

  sqlite::Database& database_;
  sqlite::Statement insert_point_, insert_last_, insert_end_point_;
  std::map<std::string, int64_t> keys_;                       ///< committed keys
  std::map<std::string, int64_t> new_keys_;                   ///< inserted by the open transaction
  std::set<std::pair<int64_t, int64_t>> out_of_order_;        ///< (run, key)
  std::map<std::pair<int64_t, int64_t>, Activity> activity_;  ///< (run, attempt)
  std::map<int64_t, int64_t> newest_;                         ///< run -> newest attempt, in the open transaction
};

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
