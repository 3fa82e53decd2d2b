// Migrates a ledger file to this program's schema, and makes temporary ledgers with it. The files schemas/ledger/NNN_name.sql are embedded
// at build time, in order.
#pragma once
#include <filesystem>
#include <span>

#include "runner/ledger/sqlite.hpp"

namespace runner {

struct Migration {
  const char* name;  ///< "001_runs"
  const char* sql;
};

/// All migrations. Element i changes a file from version i (PRAGMA user_version) to version i + 1.
std::span<const Migration> migrations();

/// "RUNR", stored in the header of every ledger file.
constexpr int64_t ledger_application_id = 0x52554e52;

/// The version of the file's schema; 0 for an empty file. Throws Error(environment) if the file is another program's
/// database or its schema is newer than `list`.
int64_t schema_version(sqlite::Database& database, std::span<const Migration> list = migrations());

/// The version of the file's schema as in schema_version(), but a newer schema is no error.
int64_t stored_version(sqlite::Database& database);

/// Applies the missing migrations in one transaction, so a failure or a kill leaves the file unchanged. Several processes
/// may migrate the same file at the same time. A file with runs is copied first: ledger.db.before-010 is the file as it was before
/// migration 010. The copy is kept. With `copies` = false, there is none.
void migrate(sqlite::Database& database, std::span<const Migration> list = migrations(), bool copies = true);

/// A ledger in a temporary file, for rows that are prepared before the real ledger is locked: empty, with the tables of today. In
/// the folder of the ledger; the destructor removes it, and `runner gc` does so after a kill.
class ScratchLedger {
 public:
  /// `from`: the database that it is a copy of, whose tables are brought up to date. Throws Error(environment) if the file cannot be
  /// written, or `from` cannot be read.
  explicit ScratchLedger(const std::filesystem::path& home, const std::filesystem::path& from = {});
  ~ScratchLedger();
  ScratchLedger(const ScratchLedger&) = delete;
  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
};

}  // namespace runner
