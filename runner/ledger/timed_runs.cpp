#include "runner/ledger/timed_runs.hpp"

#include "runner/base/files.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/sqlite.hpp"

namespace runner {

std::vector<TimedRun> timed_runs(const std::string& home, int most) {
  constexpr int looked_through = 4000;
  const fs::path file = fs::path(home) / "ledger.db";
  if (!fs::exists(file)) return {};
  Ledger ledger(home, Ledger::Mode::read);  // migrates the file
  sqlite::Database database(file, sqlite::Access::existing);
  auto rows = database.query(
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
