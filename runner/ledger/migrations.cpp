#include "runner/ledger/migrations.hpp"

#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"

namespace runner {

int64_t schema_version(sqlite::Database& database, std::span<const Migration> list) {
  const int64_t version = stored_version(database);
  if (version > static_cast<int64_t>(list.size()))
    throw environment_error(
        "the ledger {} has schema {}, and this runner knows schemas up to {} ({}): it was written by a newer "
        "runner, and this one can only read it. Use that one, or name another folder with RUNNER_HOME",
        database.path().string(), version, list.size(), list.back().name);
  return version;
}

int64_t stored_version(sqlite::Database& database) {
  const int64_t version = database.integer("PRAGMA user_version");
  const bool empty = version == 0 && database.integer("SELECT count(*) FROM sqlite_schema") == 0;
  if (!empty && database.integer("PRAGMA application_id") != ledger_application_id)
    throw environment_error(
        "{} is not a ledger: it is an SQLite database of another program. Move it away, or name another folder "
        "with RUNNER_HOME",
        database.path().string());
  return version;
}

namespace {

bool has_runs(sqlite::Database& database) {
  return database.integer("SELECT count(*) FROM (SELECT 1 FROM run LIMIT 1)") > 0;
}

/// Keeps the file as it is before the migration. The caller holds the write lock, so no other process changes it meanwhile.
void keep_old_file(sqlite::Database& database, const Migration& first) {
  const std::string number = std::string(first.name).substr(0, 3);
  const std::string name = database.path().string() + ".before-" + number;
  fs::path copy = name;
  for (int next = 2; fs::exists(copy); ++next)
    copy = name + "-" + std::to_string(next);  // of a process that was killed, or another file
  try {
    sqlite::back_up(database.path(), copy);
  } catch (const Error& error) {
    throw environment_error(
        "the ledger {} was not changed to the schema of this runner, because it cannot be copied first: {}",
        database.path().string(), error.what());
  }
  log::info("the ledger {} is changed to the schema of this runner; {} is a copy of it as it was",
            database.path().string(), copy.filename().string());
}

}  // namespace

void migrate(sqlite::Database& database, std::span<const Migration> list, bool copies) {
  if (schema_version(database, list) == static_cast<int64_t>(list.size())) return;
  sqlite::Transaction transaction(database);
  // The version is read again: another process may have migrated the file while this one waited for the lock.
  const auto version = static_cast<size_t>(schema_version(database, list));
  if (version == list.size()) return;
  if (copies && version > 0 && has_runs(database)) keep_old_file(database, list[version]);
  for (const auto& migration : list.subspan(version)) {
    database.execute(migration.sql);
    fault_point("migration");
  }
  database.execute(
      fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", ledger_application_id, list.size()));
  fault_point("migrated");
  transaction.commit();
  fault_point("migration committed");
}

ScratchLedger::ScratchLedger(const fs::path& home, const fs::path& from) : file_(new_temporary_file(home / ".import")) {
  try {
    if (!from.empty()) fs::copy_file(from, file_, fs::copy_options::overwrite_existing);
    sqlite::Database database(file_, sqlite::Access::create);
    database.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off");
    if (!from.empty()) database.execute("PRAGMA application_id = " + std::to_string(ledger_application_id));
    migrate(database, migrations(), /*copies=*/false);
  } catch (...) {
    std::error_code ignored;
    fs::remove(file_, ignored);
    throw;
  }
}

ScratchLedger::~ScratchLedger() { sqlite::remove_database(file_); }

}  // namespace runner
