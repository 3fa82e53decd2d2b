// What one writing transaction does to the tables of a run: points, events, artifacts, heartbeats. Knows no threads.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runner/ledger/ledger.hpp"
#include "runner/ledger/sqlite.hpp"

namespace runner {

/// The row numbers of a run and of the attempt that this process makes at it (0: none, it only adds to a run that has
/// ended).
struct Lease {
  int64_t run = 0;
  int64_t attempt = 0;
};

class Batch {
 public:
  explicit Batch(sqlite::Database& database);

  /// Whether `lease` is still the run's newest attempt (or a remark). What another process has taken up is not ours to
  /// write: the changes below then do nothing.
  bool owns(const Lease& lease);
  void points(const Lease& lease, double now, const std::vector<MetricPoint>& points);
  /// What is common to events and artifacts.
  struct Record {
    std::string kind, fields;      ///< JSON object
    int64_t step = 0;              ///< counts towards the run's
    std::optional<int64_t> saved;  ///< that of the newest snapshot before it
  };
  void event(const Lease& lease, double now, const Record& record);
  void artifact(const Lease& lease, double now, const Record& record, const std::string& path);
  /// Drops every point after `step`, and what came after the snapshot of `step`: all this will be made again.
  /// Checkpoints up to `step` stay.
  void rewind(int64_t run, int64_t step);
  /// The run was alive at `now` and had come to `step`.
  void touch(const Lease& lease, double now, int64_t step = 0);

  /// Before the commit: what is kept once a batch and not once a change (metric_last of points that came out of order,
  /// heartbeats, steps). A run that was taken for lost and still reports is running again.
  void close();
  /// After a commit.
  void committed();
  /// After a rollback: forgets what the transaction had made.
  void rolled_back();

  sqlite::Database& database() { return database_; }

 private:
  struct Activity {
    double time = 0;
    int64_t step = 0;
  };

  int64_t key(const std::string& name);
  /// metric_last of one key (or of all, key = 0) from the points themselves.
  void refresh_last(int64_t run, int64_t key);
  void forget();

  sqlite::Database& database_;
  sqlite::Statement insert_point_, insert_last_;
  std::map<std::string, int64_t> keys_;                       ///< known to be in the file
  std::map<std::string, int64_t> new_keys_;                   ///< made by the open transaction
  std::set<std::pair<int64_t, int64_t>> out_of_order_;        ///< (run, key)
  std::map<std::pair<int64_t, int64_t>, Activity> activity_;  ///< (run, attempt)
  std::map<int64_t, int64_t> newest_;                         ///< attempt of a run, in the open transaction
};

}  // namespace runner
