// The changes that one write transaction makes to the tables of a run: points, events, artifacts, heartbeats. Not
// thread-safe.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
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

}  // namespace runner
