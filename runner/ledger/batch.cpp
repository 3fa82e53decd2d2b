// The changes of one transaction.
#include <algorithm>
#include <cmath>

#include "runner/ledger/process_identity.hpp"
#include "runner/ledger/writer.hpp"

namespace runner {

Batch::Batch(sqlite::Database& database)
    : database_(database),
      insert_point_(database,
                    "INSERT INTO metric (run, key, step, value) VALUES (?, ?, ?, ?) "
                    "ON CONFLICT (run, key, step) DO UPDATE SET value = excluded.value"),
      insert_last_(database,
                   "INSERT INTO metric_last (run, key, step, value, min, max) VALUES (?1, ?2, ?3, ?4, ?4, ?4) "
                   "ON CONFLICT (run, key) DO UPDATE SET step = excluded.step, value = excluded.value, "
                   "  min = min(ifnull(min, excluded.min), ifnull(excluded.min, min)), "
                   "  max = max(ifnull(max, excluded.max), ifnull(excluded.max, max)) "
                   "WHERE excluded.step > metric_last.step"),
      insert_end_point_(database,
                        "INSERT INTO end_point (run, key, step, replaces, value) "
                        "SELECT ?1, ?2, ?3, count(*), max(value) FROM metric WHERE run = ?1 AND key = ?2 AND step = ?3 "
                        "ON CONFLICT DO NOTHING") {}

int64_t Batch::key(const std::string& name) {
  for (const auto* known : {&keys_, &new_keys_})
    if (const auto found = known->find(name); found != known->end()) return found->second;
  database_.run("INSERT INTO key (name) VALUES (?) ON CONFLICT DO NOTHING", name);
  return new_keys_[name] = database_.integer("SELECT key FROM key WHERE name = ?", name);
}

bool Batch::owns(const Lease& lease) {
  if (lease.attempt == 0) return true;
  auto [found, unknown] = newest_.try_emplace(lease.run);
  if (unknown) {
    // The numbers of a run that was purged may belong to a later run. Then the attempt is another process's.
    const ProcessIdentity me = this_process();
    auto row = database_.query(
        "SELECT max(attempt), (SELECT pid = ?2 AND process_start = ?3 FROM attempt WHERE attempt = ?4) FROM attempt "
        "WHERE run = ?1",
        lease.run, me.pid, me.start_time, lease.attempt);
    RUNNER_CHECK(row.step());
    found->second = row.integer(1) != 0 ? row.integer(0) : INT64_MAX;
  }
  return found->second <= lease.attempt;
}

void Batch::points(const Lease& lease, double now, const std::vector<MetricPoint>& points) {
  if (!owns(lease)) return;
  int64_t last_step = 0;
  for (const auto& point : points) {
    const int64_t key_row = key(point.name);
    if (point.at_end) insert_end_point_.bind(lease.run, key_row, point.step).step();
    insert_point_.bind(lease.run, key_row, point.step, point.value).step();
    insert_last_.bind(lease.run, key_row, point.step, point.value).step();
    if (database_.changes() == 0) out_of_order_.emplace(lease.run, key_row);
    last_step = std::max(last_step, point.step);
  }
  touch(lease, now, last_step);
}

void Batch::system_samples(const Lease& lease, double now, const std::vector<std::pair<std::string, double>>& values) {
  if (!owns(lease)) return;
  for (const auto& [name, value] : values)
    database_.run("INSERT OR REPLACE INTO system_sample (run, key, time, value) VALUES (?, ?, ?, ?)", lease.run,
                  key(name), now, value);
  touch(lease, now);
}

namespace {

/// Snapshots are counted in half steps.
std::optional<int64_t> halves(const std::optional<double>& saved) {
  return saved ? std::optional<int64_t>(std::llround(2 * *saved)) : std::nullopt;
}

}  // namespace

void Batch::event(const Lease& lease, double now, const Record& record) {
  if (!owns(lease)) return;
  database_.run("INSERT INTO event (run, time, kind, fields, saved) VALUES (?, ?, ?, ?, ?)", lease.run, now,
                record.kind, record.fields, halves(record.saved));
  touch(lease, now, record.step);
}

void Batch::artifact(const Lease& lease, double now, const Record& record, const std::string& path) {
  if (!owns(lease)) return;
  database_.run("INSERT INTO artifact (run, time, kind, path, fields, saved) VALUES (?, ?, ?, ?, ?, ?)", lease.run, now,
                record.kind, path, record.fields, halves(record.saved));
  touch(lease, now, record.step);
}

void Batch::forget_end(int64_t run) {
  database_.run("DELETE FROM metric WHERE run = ?1 AND (key, step) IN (SELECT key, step FROM end_point WHERE run = ?1)",
                run);
  database_.run(
      "INSERT INTO metric (run, key, step, value) SELECT run, key, step, value FROM end_point "
      "WHERE run = ? AND replaces",
      run);
  database_.run("DELETE FROM end_point WHERE run = ?", run);
}

void Batch::rewind(int64_t run, int64_t step, bool completed) {
  const int64_t saved = completed ? 2 * step : 2 * step - 1;
  forget_end(run);
  database_.run("DELETE FROM metric WHERE run = ? AND step > ?", run, step);
  database_.run("DELETE FROM event WHERE run = ? AND saved >= ?", run, saved);
  database_.run(
      "DELETE FROM artifact WHERE run = ?1 AND CASE kind WHEN 'checkpoint' THEN json_extract(fields, '$.step') > ?2 "
      "ELSE saved >= ?3 END",
      run, step, saved);
  database_.run("DELETE FROM metric_last WHERE run = ?", run);
  refresh_last(run, 0);
  database_.run("UPDATE run SET steps = min(steps, ?) WHERE run = ?", step, run);
  for (auto& [lease, activity] : activity_)
    if (lease.first == run) activity.step = std::min(activity.step, step);
}

void Batch::refresh_last(int64_t run, int64_t key) {
  database_.run(
      "INSERT OR REPLACE INTO metric_last (run, key, step, value, min, max) "
      "SELECT metric.run, metric.key, metric.step, metric.value, low, high "
      "FROM (SELECT key, max(step) AS step, min(value) AS low, max(value) AS high FROM metric "
      "      WHERE run = ?1 AND (?2 = 0 OR key = ?2) GROUP BY key) AS extent "
      "JOIN metric ON metric.run = ?1 AND metric.key = extent.key AND metric.step = extent.step",
      run, key);
}

void Batch::touch(const Lease& lease, double now, int64_t step) {
  if (lease.attempt == 0 || !owns(lease)) return;  // this process does not run it
  auto& activity = activity_[{lease.run, lease.attempt}];
  activity.time = std::max(activity.time, now);
  activity.step = std::max(activity.step, step);
}

void Batch::close() {
  for (const auto& [run, key] : out_of_order_) refresh_last(run, key);
  for (const auto& [lease, activity] : activity_) {
    const auto [run, attempt] = lease;
    database_.run("UPDATE attempt SET heartbeat = max(heartbeat, ?) WHERE attempt = ?", activity.time, attempt);
    database_.run("UPDATE run SET steps = max(steps, ?) WHERE run = ?", activity.step, run);
    database_.run("UPDATE run SET status = 'running', ended = NULL WHERE run = ? AND status = 'lost'", run);
    if (database_.changes() > 0) database_.run("UPDATE attempt SET ended = NULL WHERE attempt = ?", attempt);
  }
}

void Batch::forget() {
  new_keys_.clear();
  out_of_order_.clear();
  activity_.clear();
  newest_.clear();
}

void Batch::committed() {
  keys_.merge(new_keys_);
  forget();
}

void Batch::rolled_back() { forget(); }

}  // namespace runner
