#include "runner/ledger/foreign_runs.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runner/base/clock.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/ledger_impl.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// A digest of everything that is imported of the run.
std::string digest_of(const ForeignRun& run) {
  std::string text = to_text(json{run.name, run.status, run.group, run.notes, run.host, run.tags, run.config,
                                  run.started, or_null(run.ended)});
  std::string digests = xxh3_hex(text);
  text.clear();
  for (const auto& point : run.points) {
    text += fmt::format("{}\n{} {}\n", point.name, point.step, point.value);
    if (text.size() < (1U << 20)) continue;
    digests += xxh3_hex(text);
    text.clear();
  }
  return xxh3_hex(digests + xxh3_hex(text));
}

struct EarlierImport {
  int64_t run = 0;
  std::string id, digest;
};

/// The run that an earlier import of the same origin has made; run 0: none.
EarlierImport imported_before(sqlite::Database& database, const std::string& kind, const std::string& origin) {
  auto row = database.query(
      "SELECT run, id, digest FROM imported JOIN run USING (run) WHERE kind = ? AND origin = ? ORDER BY imported DESC",
      kind, origin);
  if (!row.step()) return {};
  return {.run = row.integer(0), .id = row.text(1), .digest = row.text(2)};
}

int64_t add_row(sqlite::Database& database, const std::string& kind, const ForeignRun& run, const std::string& id) {
  const std::string empty = keep_text(database, ""), nothing = keep_text(database, "{}");
  database.run(
      "INSERT INTO run (id, name, status, strategy, world_size, started, ended, tags, notes, grp, folder, "
      "working_directory, argv, "
      "build_id, git, host, recipe, resolved, config, origins, plan) "
      "VALUES (?1, ?2, ?3, ?4, 1, ?5, ?6, ?7, ?8, ?9, ?10, '', '[]', '', 'null', ?11, ?12, ?12, ?13, ?13, ?14)",
      id, run.name, run.status, kind, run.started, run.ended, to_text(run.tags), run.notes, run.group, "runs/" + id,
      to_text(run.host.empty() ? json() : json{{"hostname", run.host}}), empty, nothing,
      keep_text(database, to_text(json{{"strategy", kind}, {"reason", "imported"}})));
  const int64_t row = database.last_insert_rowid();
  database.run(
      "INSERT INTO attempt (run, number, reason, host, boot_id, pid_namespace, pid, process_start, started, heartbeat, "
      "ended) "
      "VALUES (?, 1, ?, ?, '', '', 0, 0, ?, ?, ?)",
      row, "imported from " + kind, run.host, run.started, run.ended.value_or(run.started),
      run.ended.value_or(run.started));
  return row;
}

/// Replaces parameters and points of the run.
void fill_row(sqlite::Database& database, int64_t row, const ForeignRun& run) {
  database.run("UPDATE run SET config = ?, status = ?, started = ?, ended = ? WHERE run = ?",
               keep_text(database, to_text(run.config)), run.status, run.started, run.ended, row);
  note_config(database, row);
  for (const char* table : {"metric", "metric_last", "end_point"})
    database.run(std::string("DELETE FROM ") + table + " WHERE run = ?", row);
  Batch batch(database);
  batch.points({.run = row, .attempt = 0}, 0, run.points);
  batch.close();
  int64_t steps = 0;
  for (const auto& point : run.points) steps = std::max(steps, point.step);
  database.run("UPDATE run SET steps = ? WHERE run = ?", steps, row);
}

}  // namespace

void set_parameter(json& config, const std::string& name, const json& value) {
  json* place = &config;
  const auto parts = split(name, '.');
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    auto& next = (*place)[parts[i]];
    if (!next.is_object()) next = next.is_null() ? json::object() : json{{"", next}};
    place = &next;
  }
  auto& last = (*place)[parts.back()];
  if (last.is_object() && !value.is_object())
    last[""] = value;
  else
    last = value;
}

void set_parameter(json& config, const std::string& name, const std::string& value) {
  json parsed = value;
  double number = 0;
  int64_t whole = 0;
  const auto* end = value.data() + value.size();
  if (const auto [stop, error] = std::from_chars(value.data(), end, whole); error == std::errc() && stop == end)
    parsed = whole;
  else if (const auto [last, failed] = std::from_chars(value.data(), end, number);
           failed == std::errc() && last == end && std::isfinite(number))
    parsed = number;
  else if (value == "true" || value == "True")
    parsed = true;
  else if (value == "false" || value == "False")
    parsed = false;
  set_parameter(config, name, parsed);
}

std::string imported_from(const std::string& home, const std::string& run) {
  const auto database = open_to_read(fs::path(home) / "ledger.db");
  if (!database) return "";
  auto row = database->query(
      "SELECT kind, source FROM imported JOIN run USING (run) WHERE id = ? ORDER BY imported DESC", run);
  return row.step() ? fmt::format("{} ({})", row.text(0), row.text(1)) : "";
}

std::vector<MergedRun> add_foreign_runs(const std::string& home, const std::string& kind, const std::string& source,
                                        const std::vector<ForeignRun>& runs) {
  { Ledger ledger(home, Ledger::Mode::write); }  // creates or migrates it
  sqlite::Database database(fs::path(home) / "ledger.db", sqlite::Access::existing);
  const std::string place = fs::absolute(source).lexically_normal().string();
  std::vector<MergedRun> merged;
  sqlite::Transaction transaction(database);
  for (const auto& run : runs) {
    const std::string digest = digest_of(run);
    EarlierImport before = imported_before(database, kind, run.origin);
    if (before.run != 0 && before.digest == digest) {
      merged.push_back({.id = before.id, .name = run.name, .outcome = MergedRun::Outcome::unchanged, .why = ""});
      continue;
    }
    const bool is_new = before.run == 0;
    if (is_new) {
      before.id = unused_id(database, "run", run.started);
      before.run = add_row(database, kind, run, before.id);
    }
    fill_row(database, before.run, run);
    database.run("INSERT INTO imported (run, time, kind, source, origin, digest) VALUES (?, ?, ?, ?, ?, ?)", before.run,
                 wall_seconds(), kind, place, run.origin, digest);
    merged.push_back({.id = before.id,
                      .name = run.name,
                      .outcome = is_new ? MergedRun::Outcome::added : MergedRun::Outcome::updated,
                      .why = ""});
    fault_point("import run");
  }
  transaction.commit();
  return merged;
}

}  // namespace runner
