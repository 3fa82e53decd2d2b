// What one writing transaction does to the tables of a run: points, events, artifacts, heartbeats. Knows no threads.
#pragma once
#include <cstdint>
#include <map>
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

  void points(const Lease& lease, double now, const std::vector<MetricPoint>& points);
  void event(const Lease& lease, double now, const std::string& kind, const std::string& fields, int64_t step);
  void artifact(const Lease& lease, double now, const std::string& kind, const std::string& path,
                const std::string& fields, int64_t step);
  /// Drops every point after `step`, because it will be computed again.
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
};

}  // namespace runner
