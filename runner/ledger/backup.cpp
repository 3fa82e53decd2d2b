#include "runner/ledger/backup.hpp"

#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"

namespace runner {

void copy_pages(sqlite::Database& source, sqlite::Database& target) {
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
    for (const char* end : {"", "-journal", "-wal", "-shm"}) fs::remove(temporary.string() + end, ignored);
    {
      sqlite::Database source(from, sqlite::Access::existing), target(temporary, sqlite::Access::create);
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

}  // namespace runner
