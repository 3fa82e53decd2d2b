#include "runner/ledger/orphans.hpp"

#include <algorithm>
#include <set>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/ledger/hidden_folders.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/process_identity.hpp"
#include "runner/ledger/row_copy.hpp"
#include "runner/ledger/spool.hpp"

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

/// The runs that the file says are running, and that are: the supervisor of each is alive. On a full disk, the file cannot be told that one
/// is gone; `runner ls` shows what is beside it.
std::set<int64_t> living_runs(sqlite::Database& database, const fs::path& home) {
  std::set<int64_t> living;
  const ProcessIdentity me = this_process();
  auto leases = database.query(
      "SELECT run.run, attempt.host, ifnull(machine, ''), boot_id, pid_namespace, pid, process_start, heartbeat, "
      "folder FROM run JOIN attempt ON attempt.run = run.run AND number = (SELECT max(number) FROM attempt WHERE run = "
      "run.run) WHERE status = 'running'");
  while (leases.step()) {
    const ProcessIdentity owner{leases.text(1), leases.text(2),    leases.text(3),
                                leases.text(4), leases.integer(5), leases.integer(6)};
    const auto writes_beside = [&] {  // a process on another machine, whose heartbeats go there
      const auto spool = find_spool(home, home / leases.text(8));
      return !spool.empty() && spool_in_use(spool);
    };
    if (!is_gone(owner, leases.real(7), me, wall_seconds()) || writes_beside()) living.insert(leases.integer(0));
  }
  return living;
}

/// The living run, other than `run` itself, whose settings name `folder` or a path below it; empty if there is none.
std::string live_reader_of(sqlite::Database& database, const std::set<int64_t>& living, const fs::path& folder,
                           int64_t run) {
  const fs::path path = real_path(folder);
  auto live = database.query(
      "SELECT id, (SELECT content FROM config WHERE hash = run.config), annotations, run FROM run "
      "WHERE status = 'running' AND run <> ?",
      run);
  while (live.step()) {
    if (!living.contains(live.integer(3))) continue;
    const json start = json::parse(live.text(2)).value("start", json());
    if (names_below(start, path) || names_below(json::parse(live.text(1)), path)) return live.text(0);
  }
  return "";
}

std::unique_ptr<sqlite::Database> open_ledger(const std::string& home) {
  return open_to_change(fs::path(home) / "ledger.db");
}

/// As live_use_of(). `living`: as living_runs().
std::string use_among(sqlite::Database& database, const std::set<int64_t>& living, const fs::path& home, int64_t run) {
  auto own = database.query("SELECT host, pid FROM attempt WHERE run = ? ORDER BY number DESC", run);
  if (living.contains(run) && own.step())
    return fmt::format("it is running, as process {} on {}", own.integer(1), own.text(0));
  if (auto sweep = running_sweep_of(database, run); !sweep.empty()) return sweep;
  auto children = database.query("SELECT id, run FROM edge JOIN run ON run.run = target WHERE source = ?", run);
  while (children.step())
    if (living.contains(children.integer(1)))
      return fmt::format("run {}, which is running, started from it", children.text(0));
  const std::string folder = database.text("SELECT folder FROM run WHERE run = ?", run);
  if (const auto reader = live_reader_of(database, living, home / folder, run); !reader.empty())
    return fmt::format("run {}, which is running, reads from its folder", reader);
  return "";
}

}  // namespace

std::string live_use_of(sqlite::Database& database, const fs::path& home, int64_t run) {
  return use_among(database, living_runs(database, home), home, run);
}

UnreferencedTexts unreferenced_texts_of(const std::string& home, bool dry) {
  const auto opened = open_ledger(home);
  auto& database = *opened;
  sqlite::Transaction transaction(database);
  const std::string unused = unreferenced_texts(database);
  auto row = database.query("SELECT count(*), ifnull(sum(octet_length(content)), 0) FROM config WHERE " + unused);
  RUNNER_CHECK(row.step());
  const UnreferencedTexts found{.count = row.integer(0), .bytes = row.integer(1)};
  if (dry || found.count == 0) return found;
  database.execute("DELETE FROM config WHERE " + unused);
  transaction.commit();
  return found;
}

std::vector<fs::path> orphaned_folders(const std::string& home, bool hide) {
  const auto opened = open_ledger(home);
  auto& database = *opened;
  // A new run's folder is made while its row is written. With the write lock, no run begins now.
  sqlite::Transaction transaction(database);
  std::set<fs::path> known;  // a folder with a record beside the run belongs to a run that a ledger does not have yet
  for (const auto& folder : database.texts("SELECT folder FROM run"))
    known.insert(fs::absolute(fs::path(home) / folder).lexically_normal());
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(fs::path(home) / "runs", error), end; !error && entry != end;
       entry.increment(error)) {
    fs::path path = entry->path();
    std::error_code failed;
    if (path.filename().string().starts_with('.') || !fs::is_directory(fs::symlink_status(path, failed)) ||
        known.contains(fs::absolute(path).lexically_normal()) || !find_spool(home, path).empty())
      continue;
    if (hide) {
      const fs::path hidden = purged_folder(path);
      fs::rename(path, hidden, failed);
      if (failed) {
        log::warning("cannot remove {}: {}", path.string(), failed.message());
        continue;
      }
      path = hidden;
    }
    found.push_back(path);
  }
  return found;
}

namespace {

std::vector<fs::path> starts_in(sqlite::Database& database) {
  std::vector<fs::path> starts;
  auto rows = database.query(
      "SELECT json_extract(annotations, '$.start') FROM run WHERE deleted IS NULL AND status <> 'finished' "
      "AND json_type(annotations, '$.start') = 'text'");
  while (rows.step()) starts.push_back(real_path(rows.text(0)));
  return starts;
}

}  // namespace

std::vector<fs::path> foreign_starts(const std::string& home) { return starts_in(*open_ledger(home)); }

std::map<std::string, std::string> live_uses(const std::string& home, const std::vector<std::string>& runs) {
  const auto opened = open_ledger(home);
  if (runs.empty()) return {};
  const auto living = living_runs(*opened, home);
  std::map<std::string, std::string> uses;
  for (const auto& id : runs) {
    auto row = opened->query("SELECT run FROM run WHERE id = ?", id);
    if (!row.step()) continue;
    if (auto use = use_among(*opened, living, home, row.integer(0)); !use.empty()) uses[id] = use;
  }
  return uses;
}

std::string remove_unused_checkpoint(const std::string& home, const std::string& run, const fs::path& path,
                                     const std::function<void()>& remove) {
  const auto opened = open_ledger(home);
  auto& database = *opened;
  sqlite::Transaction transaction(database);
  auto row = database.query("SELECT run FROM run WHERE id = ?", run);
  if (!row.step()) return "the run is gone";
  if (auto use = live_use_of(database, home, row.integer(0)); !use.empty()) return use;
  const auto starts = starts_in(database);
  if (std::ranges::find(starts, real_path(path)) != starts.end())
    return "another run starts from " + path.filename().string();
  remove();
  return "";
}

}  // namespace runner
