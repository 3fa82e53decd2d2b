#include "runner/ledger/migrations.hpp"

namespace runner {

int64_t schema_version(sqlite::Database& database, std::span<const Migration> list) {
  const int64_t version = database.integer("PRAGMA user_version");
  const std::string file = database.path().string();
  const bool empty = version == 0 && database.integer("SELECT count(*) FROM sqlite_schema") == 0;
  if (!empty && database.integer("PRAGMA application_id") != ledger_application_id)
    throw environment_error(
        "{} is not a ledger: it is an SQLite database of another program. Move it away, or name another folder "
        "with RUNNER_HOME",
        file);
  if (version > static_cast<int64_t>(list.size()))
    throw environment_error(
        "the ledger {} has schema {}, and this runner knows schemas up to {} ({}): it was written by a newer "
        "runner. Use that one, or name another folder with RUNNER_HOME",
        file, version, list.size(), list.back().name);
  return version;
}

void migrate(sqlite::Database& database, std::span<const Migration> list) {
  if (schema_version(database, list) == static_cast<int64_t>(list.size())) return;
  sqlite::Transaction transaction(database);
  // The version is read again: another process may have migrated the file while this one waited for the lock.
  for (auto version = static_cast<size_t>(schema_version(database, list)); version < list.size(); ++version)
    database.execute(list[version].sql);
  database.execute(
      fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", ledger_application_id, list.size()));
  transaction.commit();
}

}  // namespace runner
