// Opens the ledger: finds its folder, creates and migrates the file, and finds runs whose supervisor is gone.
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/process_identity.hpp"
#include "runner/ledger/spool.hpp"

namespace runner {

namespace {

/// SQLite does not apply its busy timeout to a change of journal mode, so this function retries when several processes
/// open a new ledger at the same time.
void set_journal_mode(sqlite::Database& database, const char* mode) {
  const double deadline = steady_seconds() + 10;
  while (true) {
    try {
      if (database.text("PRAGMA journal_mode") != mode) database.execute(std::string("PRAGMA journal_mode = ") + mode);
      return;
    } catch (const sqlite::Failure& failure) {
      if (failure.primary() != SQLITE_BUSY || steady_seconds() > deadline) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

/// The files with records of lost runs that were written beside the runs while the ledger could not be written.
std::map<int64_t, fs::path> spools_of(sqlite::Database& database, const fs::path& home,
                                      const std::map<int64_t, double>& lost) {
  std::map<int64_t, fs::path> files;
  for (const auto& [run, heartbeat] : lost) {
    auto row = database.query("SELECT folder FROM run WHERE run = ?", run);
    if (const auto file = row.step() ? find_spool(home, home / row.text(0)) : fs::path(); !file.empty())
      files[run] = file;
  }
  return files;
}

/// Adds these records. Returns those that the ledger cannot take now; `full`: one of them because its disk is full.
std::map<int64_t, fs::path> add_spools(sqlite::Database& database, const std::map<int64_t, fs::path>& spools,
                                       std::map<int64_t, double>& lost, bool keep, bool& full) {
  std::map<int64_t, fs::path> left;
  for (const auto& [run, file] : spools) {
    try {
      if (!merge_spool(database, file, /*same_numbers=*/false, keep)) continue;
      auto now = database.query(
          "SELECT status, (SELECT max(heartbeat) FROM attempt WHERE attempt.run = run.run), id FROM run "
          "WHERE run = ?",
          run);
      const bool found = now.step();
      if (found && now.text(0) == "running")
        lost[run] = now.real(1);
      else
        lost.erase(run);
      if (found && !keep) log::info("the record of run {} was added from {}", now.text(2), file.string());
    } catch (const Error& error) {
      left[run] = file;
      static std::mutex mutex;
      static std::set<fs::path> told;  // a command may open the ledger several times
      const std::lock_guard lock(mutex);
      const std::string why = error.what();
      const bool no_space = why.ends_with(sqlite::disk_full);
      full |= no_space;
      if (told.insert(file).second)
        log::warning("the record in {} is not in the ledger yet: {}", file.string(),
                     no_space ? sqlite::disk_full : why);
    }
  }
  return left;
}

/// A copy of the ledger in memory.
std::unique_ptr<sqlite::Database> copy_in_memory(sqlite::Database& database) {
  auto copy = std::make_unique<sqlite::Database>(":memory:", sqlite::Access::create);
  sqlite::copy_pages(database, *copy);
  return copy;
}

/// Adds the patterns of metric names that this runner knows and the migrations did not (base/metric_names.hpp).
void add_directions(sqlite::Database& database) {
  const auto patterns = nlohmann::json(higher_is_better_patterns()).dump();
  constexpr const char* missing = "FROM json_each(?) WHERE value NOT IN (SELECT pattern FROM higher_is_better)";
  if (!database.query(std::string("SELECT 1 ") + missing, patterns).step()) return;
  sqlite::Transaction transaction(database);
  database.run(std::string("INSERT INTO higher_is_better SELECT value ") + missing, patterns);
  database.run(
      "UPDATE key SET higher_is_better = EXISTS (SELECT 1 FROM higher_is_better WHERE name LIKE pattern ESCAPE '!')");
  transaction.commit();
}

/// For the file of a newer runner: migrations only add, so what this one knows can still be read.
void only_read(sqlite::Database& database, int64_t version) {
  database.execute("PRAGMA query_only = ON");
  static std::once_flag told;
  std::call_once(told, [&] {
    log::info("note: the ledger {} was written by a newer runner (schema {}; this one knows {}), so it is only read",
              database.path().string(), version, migrations().size());
  });
}

}  // namespace

std::unique_ptr<sqlite::Database> open_to_change(const fs::path& file) {
  try {
    auto database = std::make_unique<sqlite::Database>(file, sqlite::Access::existing);
    (void)database->integer("PRAGMA schema_version");  // opens the write-ahead log
    return database;
  } catch (const sqlite::Failure& failure) {
    const int kind = failure.primary();
    if (kind != SQLITE_CANTOPEN && kind != SQLITE_FULL && kind != SQLITE_IOERR) throw;
  }
  auto database = std::make_unique<sqlite::Database>(file, sqlite::Access::alone);
  (void)database->integer("PRAGMA schema_version");
  return database;
}

std::unique_ptr<sqlite::Database> open_to_read(const fs::path& file) {
  if (!fs::exists(file)) return nullptr;
  std::unique_ptr<sqlite::Database> database;
  int64_t version = 0;
  try {
    database = std::make_unique<sqlite::Database>(file, sqlite::Access::existing);
    version = stored_version(*database);
  } catch (const sqlite::Failure& failure) {
    // In a write-protected folder or on a full disk, SQLite cannot create the index of the write-ahead log. An empty log
    // needs no index.
    const fs::path log = file.string() + "-wal";
    std::error_code ignored;
    const bool has_log = fs::exists(log) && fs::file_size(log, ignored) > 0;
    const int kind = failure.primary();
    const bool no_index =
        kind == SQLITE_CANTOPEN || kind == SQLITE_READONLY || kind == SQLITE_FULL || kind == SQLITE_IOERR;
    if (!no_index || has_log) throw;
    database = std::make_unique<sqlite::Database>(file, sqlite::Access::immutable);
    version = stored_version(*database);
  }
  const auto newest = static_cast<int64_t>(migrations().size());
  if (version > newest) {
    only_read(*database, version);
    return database;
  }
  if (version < newest && database->read_only())
    throw environment_error(
        "the ledger {} has schema {}, needs {}, and is write-protected: run `runner ls` once where it can be written",
        file.string(), version, newest);
  if (version == 0) return nullptr;  // another process has created the file and not migrated it yet
  migrate(*database);
  return database;
}

namespace {

/// A file that exists from before a new ledger is made until it has the records that outlived the earlier one.
fs::path spools_wait(const fs::path& home) { return home / "spools-wait"; }

}  // namespace

std::unique_ptr<sqlite::Database> open_to_write(const fs::path& home, bool adopts) {
  std::error_code error;
  const bool created = fs::create_directories(home, error);
  if (error) throw environment_error("cannot create the ledger's folder {}: {}", home.string(), error.message());
  // Git must ignore the ledger. An existing folder with another name may belong to the user, so it gets no .gitignore.
  const bool ours = created || home.filename() == ".runner";
  if (ours && !fs::exists(home / ".gitignore")) write_file_atomic(home / ".gitignore", "*\n");
  const fs::path file = home / "ledger.db";
  if (!fs::exists(file) && has_spools(home)) write_file_atomic(spools_wait(home), "");
  auto database = std::make_unique<sqlite::Database>(file, sqlite::Access::create);
  (void)schema_version(*database);  // throws before anything is changed
  set_journal_mode(*database, on_network_filesystem(home.string()) ? "truncate" : "wal");
  migrate(*database);
  add_directions(*database);
  if (adopts && fs::exists(spools_wait(home))) {
    merge_all_spools(*database, home);
    if (!has_spools(home)) fs::remove(spools_wait(home), error);
  }
  return database;
}

Ledger::Impl::Impl(const std::string& home_folder, Mode mode) : home(home_folder), path(home / "ledger.db") {
  // The record of a run that outlived its ledger is brought back at once, also for a command that only reads.
  const bool writes = mode == Mode::write || fs::exists(spools_wait(home)) || (!fs::exists(path) && has_spools(home));
  try {
    database = writes ? open_to_write(home) : open_to_read(path);
  } catch (const Error&) {  // it is write-protected, for example
    if (mode == Mode::write || !writes) throw;
    database = open_to_read(path);
  }
  if (database) mark_lost(mode == Mode::read);
  secrets.add_environment();
  if (mode == Mode::write)
    writer = std::make_unique<Writer>(home, std::make_unique<sqlite::Database>(path, sqlite::Access::existing));
}

void Ledger::Impl::follow_writer() {
  if (writer && database && writer->file() != database->path())
    database = std::make_unique<sqlite::Database>(writer->file(), sqlite::Access::existing);
  set_wait();
}

void Ledger::Impl::set_wait() const {
  constexpr int brief_ms = 50;
  if (database) database->set_busy_timeout(brief > 0 ? brief_ms : sqlite::Database::default_busy_timeout_ms);
}

void Ledger::Impl::mark_lost(bool reads) {
  const ProcessIdentity me = this_process();
  const double now = wall_seconds();
  auto leases = database->query(
      "SELECT run.run, attempt.host, ifnull(machine, ''), boot_id, pid_namespace, pid, process_start, heartbeat "
      "FROM run JOIN attempt ON attempt.run = run.run "
      "AND number = (SELECT max(number) FROM attempt WHERE run = run.run) "
      "WHERE status = 'running'");
  while (leases.step()) {
    const ProcessIdentity owner{leases.text(1), leases.text(2),    leases.text(3),
                                leases.text(4), leases.integer(5), leases.integer(6)};
    const double heartbeat = leases.real(7);
    if (is_gone(owner, heartbeat, me, now)) lost[leases.integer(0)] = heartbeat;
  }
  leases = database->query("SELECT 1");
  bool full = false;
  auto left = add_spools(*database, spools_of(*database, home, lost), lost, /*keep=*/false, full);
  constexpr uintmax_t copied_bytes_max = 1 << 30;
  std::error_code error;
  // A disk that is still full: what the runs have recorded beside the ledger can be read all the same.
  if (reads && !left.empty() && fs::file_size(path, error) < copied_bytes_max) {
    database = copy_in_memory(*database);
    add_spools(*database, left, lost, /*keep=*/true, full);
    left.clear();
  }
  if (!full) left.clear();
  if (lost.empty()) return;
  try {
    sqlite::Transaction transaction(*database);
    for (const auto& [run, heartbeat] : lost) {
      if (left.contains(run)) continue;  // with its end in the file, nobody would add what it has recorded
      // The heartbeat is compared again: another process may have resumed the run in the meantime. An earlier attempt's
      // heartbeat may be later, if the clock was set back.
      database->run(
          "UPDATE run SET status = 'lost', ended = max(?1, started) WHERE run = ?2 AND status = 'running' "
          "AND ?1 = (SELECT heartbeat FROM attempt WHERE run = ?2 ORDER BY number DESC LIMIT 1)",
          heartbeat, run);
      if (database->changes() > 0)
        database->run("UPDATE attempt SET ended = max(heartbeat, started) WHERE run = ? AND ended IS NULL", run);
    }
    transaction.commit();
    std::erase_if(lost, [&](const auto& one) { return !left.contains(one.first); });
  } catch (const sqlite::Failure& failure) {
    if (failure.primary() == SQLITE_CORRUPT)
      throw;  // after any other failure, the ledger can still be read, and `lost` contains the lost runs
  }
}

Ledger::Ledger(const std::string& home, Mode mode) : impl_(std::make_unique<Impl>(home, mode)) {}
Ledger::~Ledger() = default;

std::shared_ptr<void> Ledger::brief_reads() const { return std::make_shared<Impl::BriefReads>(*impl_); }

namespace {

std::optional<fs::path> ledger_above(const fs::path& folder) {
  struct stat here {
  }, above{};
  if (::stat(folder.c_str(), &here) != 0) return std::nullopt;
  for (fs::path parent = folder.parent_path();; parent = parent.parent_path()) {
    if (::stat(parent.c_str(), &above) != 0 || above.st_dev != here.st_dev) return std::nullopt;
    std::error_code ignored;
    const bool anybodys = (above.st_mode & S_IWOTH) != 0;
    if (!anybodys && fs::is_directory(parent / ".runner", ignored)) return parent / ".runner";
    if (parent == parent.parent_path()) return std::nullopt;
  }
}

}  // namespace

std::string ledger_home() {
  const char* home = std::getenv("RUNNER_HOME");
  std::error_code error;
  if (home && *home) {
    if (fs::exists(home, error) && !fs::is_directory(home, error))
      throw environment_error("RUNNER_HOME = {} is a file; it must name a folder", home);
    return home;
  }
  const fs::path folder = fs::current_path(error);
  if (error || fs::is_directory(".runner", error)) return ".runner";
  const auto above = ledger_above(folder);
  if (!above) return ".runner";
  static std::once_flag named;
  std::call_once(named, [&] {
    log::info("ledger: {} (mkdir .runner makes one here; RUNNER_HOME names any other)", above->string());
  });
  return above->string();
}

bool on_network_filesystem(const std::string& folder) {
  struct statfs info {};
  if (::statfs(folder.c_str(), &info) != 0) return false;
  constexpr std::array<uint32_t, 11> types = {
      0x6969,      // NFS
      0x517b,      // SMB
      0xff534d42,  // CIFS
      0xfe534d42,  // SMB 2
      0x0bd00bd0,  // Lustre
      0x47504653,  // GPFS
      0x19830326,  // BeeGFS
      0x00c36400,  // Ceph
      0x5346414f,  // AFS
      0x65735546,  // FUSE
      0x01021997,  // 9P
  };
  return std::find(types.begin(), types.end(), static_cast<uint32_t>(info.f_type)) != types.end();
}

}  // namespace runner
