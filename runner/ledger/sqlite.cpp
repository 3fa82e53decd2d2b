#include "runner/ledger/sqlite.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"

namespace runner::sqlite {

namespace {

constexpr int first_sound_version = 3'051'003;

/// Why no file can be created in the folder of `path`; empty if it can. SQLite creates files there, also to read.
std::string write_protection(const std::filesystem::path& path) {
  const auto folder = std::filesystem::absolute(path).parent_path();
  return ::access(folder.c_str(), W_OK) == 0 ? "" : fmt::format("{}: {}", folder.string(), std::strerror(errno));
}

std::string explain(const std::filesystem::path& path, sqlite3* handle, int result, int busy_timeout_ms) {
  const std::string file = path.string();
  const char* detail = handle ? sqlite3_errmsg(handle) : sqlite3_errstr(result);
  const int system_error = handle ? sqlite3_system_errno(handle) : 0;
  const char* reason = system_error ? std::strerror(system_error) : detail;
  const std::string protection = write_protection(path);
  const std::string full = fmt::format("cannot write the ledger {}: {}", file, disk_full);
  switch (result & 0xff) {
    case SQLITE_NOTADB:
      return fmt::format(
          "{} is not a ledger: it is not an SQLite database. Move it away, or name another folder with RUNNER_HOME",
          file);
    case SQLITE_CORRUPT:
      return fmt::format(
          "the ledger {} is damaged ({}). Move it away to start a new one; `sqlite3 {} .recover` may save its rows",
          file, detail, file);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return fmt::format("the ledger {} has been locked by another process for more than {:g} s", file,
                         busy_timeout_ms / 1000.0);
    case SQLITE_FULL:
      return full;
    case SQLITE_READONLY:
      return fmt::format("cannot write the ledger {}: it is write-protected{}", file,
                         protection.empty() ? "" : " (" + protection + ")");
    case SQLITE_CANTOPEN:
    case SQLITE_IOERR:
      if (system_error == ENOSPC) return full;
      if (!protection.empty()) return fmt::format("cannot write the ledger {}: {}", file, protection);
      return fmt::format("cannot read or write the ledger {}: {}", file, reason);
    default:
      return fmt::format("ledger {}: {}", file, detail);
  }
}

/// file:PATH?immutable=1, with the special characters of a URI escaped.
std::string immutable_uri(const std::filesystem::path& path) {
  std::string uri = "file:";
  for (char c : std::filesystem::absolute(path).string())
    uri +=
        (c == '%' || c == '?' || c == '#') ? fmt::format("%{:02X}", static_cast<unsigned char>(c)) : std::string(1, c);
  return uri + "?immutable=1";
}

}  // namespace

Database::Database(const std::filesystem::path& path, Access access) : path_(path) {
  if (sqlite3_libversion_number() < first_sound_version)
    throw environment_error(
        "SQLite {} can lose pages of its write-ahead log; the ledger needs 3.51.3 or later: run scripts/setup",
        sqlite3_libversion());
  int flags = SQLITE_OPEN_EXRESCODE;
  std::string name = path.string();
  switch (access) {
    case Access::create:
      flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
      break;
    case Access::existing:
    case Access::alone:
      flags |= SQLITE_OPEN_READWRITE;
      break;
    case Access::immutable:
      flags |= SQLITE_OPEN_READONLY | SQLITE_OPEN_URI;
      name = immutable_uri(path);
      break;
  }
  sqlite3* handle = nullptr;
  // Before any thread uses SQLite, which otherwise initialises itself with reads that no lock protects.
  [[maybe_unused]] static const int initialized = sqlite3_initialize();
  // Alone with a file, SQLite keeps the index of the write-ahead log in memory, for all connections of this process.
  const int result = sqlite3_open_v2(name.c_str(), &handle, flags, access == Access::alone ? "unix-excl" : nullptr);
  handle_.reset(handle);
  check(result);
  sqlite3_busy_handler(handle, wait_for_lock, wait_.get());
  execute("PRAGMA foreign_keys = ON");
}

/// Whether SQLite shall try again.
int Database::wait_for_lock(void* wait, int tries) {
  constexpr std::array pauses = {1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100};  // ms, as SQLite's own handler
  auto& own = *static_cast<Wait*>(wait);
  const auto now = std::chrono::steady_clock::now();
  if (tries == 0) own.begun = now;
  if (now - own.begun >= std::chrono::milliseconds(own.milliseconds.load())) return 0;
  std::this_thread::sleep_for(
      std::chrono::milliseconds(pauses[std::min(static_cast<size_t>(tries), pauses.size() - 1)]));
  return 1;
}

void Database::check(int result) const {
  if (result == SQLITE_OK || result == SQLITE_ROW || result == SQLITE_DONE) return;
  throw Failure(result, explain(path_, handle_.get(), result, wait_->milliseconds));
}

bool Database::moved() const {
  int moved = 0;
  return sqlite3_file_control(handle_.get(), "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && moved != 0;
}

void Database::check_place() const {
  if (moved())
    throw Failure(SQLITE_READONLY_DBMOVED,
                  fmt::format("the ledger {} was deleted or replaced while it was in use", path_.string()));
}

void Database::execute(const std::string& sql) {
  check(sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr));
}

Statement::Statement(Database& database, std::string_view sql) : database_(&database) {
  sqlite3_stmt* handle = nullptr;
  check(sqlite3_prepare_v2(database.handle(), sql.data(), static_cast<int>(sql.size()), &handle, nullptr));
  handle_.reset(handle);
}

bool Statement::step() {
  const int result = sqlite3_step(handle_.get());
  if (result != SQLITE_ROW) sqlite3_reset(handle_.get());
  check(result);
  return result == SQLITE_ROW;
}

std::string Statement::text(int column) const {
  const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(handle_.get(), column));
  return data ? std::string(data, static_cast<size_t>(sqlite3_column_bytes(handle_.get(), column))) : std::string();
}

void copy_pages(Database& source, Database& target) {
  sqlite3_backup* backup = sqlite3_backup_init(target.handle(), "main", source.handle(), "main");
  if (!backup) target.check(sqlite3_errcode(target.handle()));
  int result = SQLITE_OK;
  // Pages in portions: SQLite starts again if another process writes in between, and the caller usually holds the write lock.
  constexpr int pages = 512;
  while ((result = sqlite3_backup_step(backup, pages)) == SQLITE_OK) fault_point("backup");
  sqlite3_backup_finish(backup);
  target.check(result);
}

void back_up(const fs::path& from, const fs::path& to) {
  const fs::path temporary = to.string() + ".tmp";
  std::error_code ignored;
  try {
    remove_database(temporary);
    {
      Database source(from, Access::existing), target(temporary, Access::create);
      copy_pages(source, target);
      // The copy has no write-ahead log, so it is one file.
      target.execute("PRAGMA journal_mode = delete");
    }
    sync_path(temporary);
    fault_point("backup written");
    std::error_code error;
    fs::rename(temporary, to, error);
    if (error) throw environment_error("cannot rename {} to {}: {}", temporary.string(), to.string(), error.message());
    sync_path(to.parent_path());
  } catch (...) {
    fs::remove(temporary, ignored);
    throw;
  }
}

void remove_database(const fs::path& file) {
  std::error_code ignored;
  for (const char* end : {"", "-wal", "-shm", "-journal"}) fs::remove(file.string() + end, ignored);
}

}  // namespace runner::sqlite
