#include "runner/ledger/live_uses.hpp"

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/process_identity.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// Whether a string in `value` is `path` (without links) or an absolute path below it. Paths in a run's settings are absolute.
bool names_below(const json& value, const fs::path& path) {
  if (value.is_string()) {
    const fs::path named = value.get_ref<const std::string&>();
    return named.is_absolute() && (relative_below(path, named) || relative_below(path, real_path(named)));
  }
  if (!value.is_structured()) return false;
  for (const auto& part : value)
    if (names_below(part, path)) return true;
  return false;
}

std::string running_sweep_of(sqlite::Database& database, int64_t run) {
  auto sweeps = database.query(
      "SELECT sweep.id, number, ifnull(sweep.host, ''), ifnull(machine, ''), ifnull(boot_id, ''), "
      "ifnull(pid_namespace, ''), ifnull(pid, 0), ifnull(process_start, 0), ifnull(heartbeat, 0) FROM trial JOIN sweep "
      "USING (sweep) WHERE trial.run = ? AND sweep.status = 'running'",
      run);
  while (sweeps.step()) {
    const ProcessIdentity owner{sweeps.text(2), sweeps.text(3),    sweeps.text(4),
                                sweeps.text(5), sweeps.integer(6), sweeps.integer(7)};
    if (!is_gone(owner, sweeps.real(8), this_process(), wall_seconds()))
      return fmt::format("it is trial {} of sweep {}, which is running", sweeps.integer(1), sweeps.text(0));
  }
  return "";
}

}  // namespace

std::string live_reader_of(sqlite::Database& database, const fs::path& folder, int64_t run) {
  const fs::path path = real_path(folder);
  auto live = database.query(
      "SELECT id, (SELECT content FROM config WHERE hash = run.config), annotations FROM run "
      "WHERE status = 'running' AND run <> ?",
      run);
  while (live.step()) {
    const json start = json::parse(live.text(2)).value("start", json());
    if (names_below(start, path) || names_below(json::parse(live.text(1)), path)) return live.text(0);
  }
  return "";
}

std::string live_use_of(sqlite::Database& database, const fs::path& home, int64_t run) {
  auto own = database.query(
      "SELECT attempt.host, pid FROM run JOIN attempt USING (run) WHERE run.run = ? AND status = 'running' "
      "ORDER BY number DESC",
      run);
  if (own.step()) return fmt::format("it is running, as process {} on {}", own.integer(1), own.text(0));
  if (auto sweep = running_sweep_of(database, run); !sweep.empty()) return sweep;
  auto child =
      database.query("SELECT id FROM edge JOIN run ON run.run = target WHERE source = ? AND status = 'running'", run);
  if (child.step()) return fmt::format("run {}, which is running, started from it", child.text(0));
  auto folder = database.query("SELECT folder FROM run WHERE run = ?", run);
  RUNNER_CHECK(folder.step());
  if (const auto reader = live_reader_of(database, home / folder.text(0), run); !reader.empty())
    return fmt::format("run {}, which is running, reads from its folder", reader);
  return "";
}

}  // namespace runner
