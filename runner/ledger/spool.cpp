#include "runner/ledger/spool.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <random>

#include "runner/base/clock.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/process_identity.hpp"
#include "runner/ledger/row_copy.hpp"
#include "runner/ledger/run_id.hpp"

namespace runner {

namespace {

/// Attempts that begin in the spool get numbers that no other process uses in the ledger meanwhile: those after an attempt of no run.
void reserve_attempts(sqlite::Database& spool) {
  std::random_device random;
  const int64_t far = (int64_t{1} << 40) + (static_cast<int64_t>(random()) << 8);
  spool.execute("PRAGMA foreign_keys = OFF");
  spool.run(
      "INSERT INTO attempt (attempt, run, number, host, boot_id, pid_namespace, pid, process_start, started, "
      "heartbeat) "
      "VALUES (?, 0, 0, '', '', '', 0, 0, 0, 0)",
      far);
}

/// Detaches a database from a connection in any case.
class Attached {
 public:
  Attached(sqlite::Database& database, const fs::path& file, const std::string& name)
      : database_(database), name_(name) {
    database_.run("ATTACH ? AS " + name, file.string());
  }
  ~Attached() { sqlite3_exec(database_.handle(), ("DETACH " + name_).c_str(), nullptr, nullptr, nullptr); }
  Attached(const Attached&) = delete;

 private:
  sqlite::Database& database_;
  std::string name_;
};

int64_t newest_attempt(sqlite::Database& database, const std::string& schema, int64_t run) {
  return database.integer("SELECT ifnull(max(number), 0) FROM " + schema + ".attempt WHERE run = ?", run);
}

/// The columns of `run` that users edit.
bool is_edited(const std::string& column) {
  constexpr const char* edited[] = {"name", "tags", "notes", "grp", "archived", "deleted", "folder"};
  return std::ranges::find(edited, column) != std::end(edited);
}

/// Copies the rows of a run that can be read. A damaged ledger may still have some of them.
void copy_what_is_left(sqlite::Database& ledger, int64_t run) {
  RowCopy rows(ledger, "main", "spool", /*keep_numbers=*/true);
  ledger.execute("CREATE TABLE spool.unread (name TEXT PRIMARY KEY) STRICT; BEGIN");
  rows.copy_table("run", run);
  for (const auto& table : tables_of_runs(ledger)) {
    try {
      rows.copy_table(table, run);
    } catch (const sqlite::Failure& failure) {
      if (table == "attempt" || failure.primary() == SQLITE_FULL) throw;
      ledger.run("INSERT INTO spool.unread VALUES (?)", table);
    }
  }
  ledger.execute("COMMIT");
}

/// Whether the spool has all rows of this table that the ledger had.
bool is_whole(sqlite::Database& ledger, const std::string& table) {
  return !ledger.query("SELECT 1 FROM spool.unread WHERE name = ?", table).step();
}

/// Replaces the rows of a run that the ledger has by those of the spool, which go on from them.
void replace_rows(sqlite::Database& ledger, int64_t spooled, int64_t run) {
  RowCopy rows(ledger, "spool", "main", /*keep_numbers=*/spooled == run);
  for (const auto& table : tables_of_runs(ledger)) {
    if (table == "change" || table == "imported") continue;
    const bool whole = is_whole(ledger, table);
    if (whole) ledger.run("DELETE FROM main." + table + " WHERE run = ?", run);
    rows.copy_table(table, spooled, /*over=*/!whole);
  }
  std::vector<std::string> columns;
  for (const auto& column : table_columns(ledger, "run"))
    if (!column.row_number && !is_edited(column.name)) columns.push_back(column.name);
  rows.copy_texts("run", spooled);
  ledger.run("UPDATE main.run SET (" + join(columns, ", ") + ") = (SELECT " + join(columns, ", ") +
                 " FROM spool.run WHERE run = ?1) WHERE run = ?2",
             spooled, run);
}

}  // namespace

bool spool_in_use(const fs::path& file) {
  try {
    sqlite::Database spool(file, sqlite::Access::existing);
    auto row = spool.query(
        "SELECT host, ifnull(machine, ''), boot_id, pid_namespace, pid, process_start, heartbeat, (SELECT ended FROM "
        "run) IS NULL "
        "FROM attempt WHERE number > 0 ORDER BY number DESC");
    if (!row.step() || !row.integer(7)) return false;
    const ProcessIdentity owner{row.text(0), row.text(1), row.text(2), row.text(3), row.integer(4), row.integer(5)};
    return !is_gone(owner, row.real(6), this_process(), wall_seconds());
  } catch (const Error&) {
    return false;
  }
}

fs::path spool_in(const fs::path& run_folder) { return run_folder / "ledger-spool.db"; }

namespace {

/// Files in memory of this user; the folder is made when it is needed.
fs::path memory_folder() {
  const char* named = std::getenv("RUNNER_SPOOL_FOLDER");
  return fs::path(named && *named ? named : "/dev/shm") / ("runner-" + std::to_string(::geteuid()));
}

/// Whether only this user can read and write the folder.
bool is_private(const fs::path& folder) {
  struct stat found {};
  return ::lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == ::geteuid() &&
         (found.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

/// Whether records in the folder in memory are this user's. Another user may have made the folder first.
bool trusts_memory() {
  std::error_code error;
  if (is_private(memory_folder())) return true;
  static std::once_flag told;
  if (fs::exists(fs::symlink_status(memory_folder(), error)))
    std::call_once(told, [] {
      log::warning("records in {} are left alone: it is not a folder that only this user can read",
                   memory_folder().string());
    });
  return false;
}

/// The beginning of the names of files that belong to one ledger. Containers that share /dev/shm may have other folders of this name.
std::string memory_prefix(const fs::path& home) {
  struct stat found {};
  ::stat(home.c_str(), &found);
  return xxh3_hex(fmt::format("{} {}", real_path(home).string(), found.st_ino)) + "-";
}

}  // namespace

std::vector<fs::path> spool_places(const fs::path& home, const fs::path& run_folder) {
  return {spool_in(run_folder), memory_folder() / (memory_prefix(home) + run_folder.filename().string() + ".db")};
}

fs::path find_spool(const fs::path& home, const fs::path& run_folder) {
  std::error_code error;
  for (const auto& place : spool_places(home, run_folder))
    if (fs::exists(place, error) && (place.parent_path() != memory_folder() || trusts_memory())) return place;
  return {};
}

bool lasts(const sqlite::Failure& failure) {
  constexpr int lasting[] = {SQLITE_FULL,   SQLITE_READONLY, SQLITE_CORRUPT,
                             SQLITE_NOTADB, SQLITE_CANTOPEN, SQLITE_IOERR};
  return std::ranges::find(lasting, failure.primary()) != std::end(lasting);
}

std::unique_ptr<sqlite::Database> seed_of(const fs::path& ledger, int64_t run) {
  auto seed = std::make_unique<sqlite::Database>(":memory:", sqlite::Access::create);
  migrate(*seed);
  const Attached attached(*seed, ledger, "ledger");
  seed->execute("BEGIN");
  RowCopy rows(*seed, "ledger", "main", /*keep_numbers=*/true);
  rows.copy_table("run", run);
  rows.copy_table("attempt", run);
  seed->execute("CREATE TABLE unread (name TEXT PRIMARY KEY) STRICT");
  for (const auto& table : tables_of_runs(*seed))
    if (table != "attempt") seed->run("INSERT INTO unread VALUES (?)", table);
  seed->execute("COMMIT");
  return seed;
}

namespace {

/// Throws Error(environment) if the folder is another user's.
void make_private(const fs::path& folder) {
  ::mkdir(folder.c_str(), S_IRWXU);
  if (!is_private(folder))
    throw environment_error("cannot use the folder {}: it is not a folder that only this user can read",
                            folder.string());
}

}  // namespace

void create_spool(sqlite::Database& ledger, int64_t run, sqlite::Database* seed, const fs::path& file) {
  const fs::path temporary = file.string() + ".tmp";
  if (file.parent_path() == memory_folder()) make_private(file.parent_path());
  sqlite::remove_database(temporary);
  try {
    try {
      {
        sqlite::Database spool(temporary, sqlite::Access::create);
        migrate(spool);
      }
      const Attached attached(ledger, temporary, "spool");
      try {
        copy_what_is_left(ledger, run);
      } catch (...) {
        sqlite3_exec(ledger.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
        throw;
      }
    } catch (const sqlite::Failure&) {
      if (!seed) throw;
      sqlite::remove_database(temporary);
      sqlite::Database spool(temporary, sqlite::Access::create);
      sqlite::copy_pages(*seed, spool);
    }
    {
      sqlite::Database spool(temporary, sqlite::Access::existing);
      reserve_attempts(spool);
    }
    sync_path(temporary);
    std::error_code error;
    // Logs of an earlier spool whose removal was killed would be taken for this one's.
    for (const char* end : {"-wal", "-shm", "-journal"}) fs::remove(file.string() + end, error);
    fs::rename(temporary, file, error);
    if (error) throw environment_error("cannot write {}: {}", file.string(), error.message());
    sync_path(file.parent_path());
  } catch (...) {
    sqlite::remove_database(temporary);
    throw;
  }
}

namespace {

/// The run whose spool this is, as its place says: RUN_DIR/ledger-spool.db, or PREFIX-RUN.db in memory.
std::string run_of_spool(const fs::path& file) {
  if (file.filename() == spool_in("")) return file.parent_path().filename().string();
  const std::string name = file.stem().string();
  return name.substr(name.find('-') + 1);
}

}  // namespace

bool merge_spool(sqlite::Database& ledger, const fs::path& file, bool same_numbers, bool keep) {
  {
    const Attached attached(ledger, file, "spool");
    sqlite::Transaction transaction(ledger);
    auto spooled = ledger.query("SELECT run, id FROM spool.run");
    if (!spooled.step()) return false;
    const int64_t there = spooled.integer(0);
    const std::string id = spooled.text(1);
    if (!is_run_id(id) || id != run_of_spool(file) || spooled.step())
      throw environment_error("the record in {} is not that of run {}", file.string(), run_of_spool(file));
    spooled = ledger.query("SELECT 1");
    auto known = ledger.query("SELECT run FROM main.run WHERE id = ?", id);
    const int64_t here = known.step() ? known.integer(0) : 0;
    known = ledger.query("SELECT 1");
    if (here != 0) {
      if (newest_attempt(ledger, "main", here) > newest_attempt(ledger, "spool", there)) return false;
      if (same_numbers && here != there) return false;
      replace_rows(ledger, there, here);
    } else {
      const bool taken =
          ledger.query("SELECT 1 FROM main.run WHERE run = ?", there).step() ||
          ledger
              .query("SELECT 1 FROM main.attempt WHERE attempt IN (SELECT attempt FROM spool.attempt WHERE run = ?)",
                     there)
              .step();
      if (taken && same_numbers) return false;
      const int64_t run = RowCopy(ledger, "spool", "main", /*keep_numbers=*/!taken).copy(there);
      note_config(ledger, run);
      ledger.run("UPDATE main.run SET folder = 'runs/' || id WHERE run = ? AND folder NOT LIKE '%/' || id", run);
    }
    fault_point("spool merge");
    transaction.commit();
  }
  fault_point("spool merged");
  if (!keep) sqlite::remove_database(file);
  return true;
}

namespace {

std::vector<fs::path> all_spools(const fs::path& home) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(home / "runs", error), end; !error && entry != end; entry.increment(error))
    found.push_back(spool_in(entry->path()));
  const fs::path memory = trusts_memory() ? memory_folder() : fs::path();
  for (fs::directory_iterator entry(memory, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(memory_prefix(home)) && name.ends_with(".db")) found.push_back(entry->path());
  }
  std::erase_if(found, [](const auto& file) { return !fs::exists(file); });
  return found;
}

}  // namespace

bool has_spools(const fs::path& home) { return !all_spools(home).empty(); }

void merge_all_spools(sqlite::Database& ledger, const fs::path& home) {
  for (const auto& file : all_spools(home)) {
    if (spool_in_use(file)) continue;
    try {
      if (merge_spool(ledger, file, /*same_numbers=*/false))
        log::info("a run's record was added from {}", file.string());
    } catch (const Error& failure) {
      log::warning("{} was not added to the ledger: {}", file.string(), failure.what());
    }
  }
}

}  // namespace runner
