#include "runner/ledger/calibrations.hpp"

#include "runner/base/files.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/sqlite.hpp"

namespace runner {

namespace {

/// The ledger's file, which stays open as a Ledger too, as that has migrated it.
struct MigratedFile {
  explicit MigratedFile(const std::string& home)
      : ledger(home, Ledger::Mode::read), database(fs::path(home) / "ledger.db", sqlite::Access::existing) {}

  Ledger ledger;
  sqlite::Database database;
};

/// The file of the ledger in `home`; null if there is none.
std::unique_ptr<MigratedFile> open_migrated(const std::string& home) {
  return fs::exists(fs::path(home) / "ledger.db") ? std::make_unique<MigratedFile>(home) : nullptr;
}

}  // namespace

void keep_calibration(const std::string& home, const CalibrationRow& row) {
  Ledger ledger(home, Ledger::Mode::write);  // creates and migrates the file
  sqlite::Database database(fs::path(home) / "ledger.db", sqlite::Access::existing);
  database.run(
      "INSERT INTO calibration (time, machine, ranks, threads, build_id, points, disturbed) "
      "VALUES (?1, ?2, ?3, ?4, ?5, ?6, nullif(?7, ''))",
      row.time, row.machine, int64_t{row.ranks}, int64_t{row.threads}, row.build_id, row.points.dump(), row.disturbed);
}

std::vector<CalibrationRow> calibrations(const std::string& home, const std::string& machine) {
  const auto file = open_migrated(home);
  if (!file) return {};
  std::vector<CalibrationRow> rows;
  auto query = file->database.query(
      "SELECT time, ranks, threads, build_id, points, ifnull(disturbed, '') FROM (SELECT *, row_number() OVER "
      "(PARTITION BY ranks, threads ORDER BY disturbed IS NOT NULL, time DESC) AS place FROM calibration "
      "WHERE machine = ?1) WHERE place = 1 ORDER BY disturbed IS NOT NULL, ranks, threads",
      machine);
  while (query.step()) {
    CalibrationRow row;
    row.machine = machine;
    row.time = query.real(0);
    row.ranks = static_cast<int>(query.integer(1));
    row.threads = static_cast<int>(query.integer(2));
    row.build_id = query.text(3);
    row.points = nlohmann::json::parse(query.text(4));
    row.disturbed = query.text(5);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<TimedRun> timed_runs(const std::string& home, int most) {
  constexpr int looked_through = 4000;
  const auto file = open_migrated(home);
  if (!file) return {};
  auto rows = file->database.query(
      "SELECT step, seconds, spread, lost FROM (SELECT run, json_extract(annotations, '$.predicted.step') AS step, "
      "json_extract(annotations, '$.measured.step_seconds') AS seconds, "
      "json_extract(annotations, '$.measured.step_seconds_spread') AS spread, "
      "ifnull(json_extract(annotations, '$.measured.lost_share'), 0) AS lost "
      "FROM (SELECT annotations, run FROM run ORDER BY run DESC LIMIT ?1)) "
      "WHERE step IS NOT NULL AND seconds IS NOT NULL AND spread IS NOT NULL ORDER BY run DESC LIMIT ?2",
      looked_through, most);
  std::vector<TimedRun> runs;
  while (rows.step()) runs.push_back({nlohmann::json::parse(rows.text(0)), rows.real(1), rows.real(2), rows.real(3)});
  return runs;
}

}  // namespace runner
