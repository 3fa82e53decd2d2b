#include "runner/ledger/scratch_ledger.hpp"

#include "runner/base/files.hpp"
#include "runner/ledger/migrations.hpp"

namespace runner {

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

ScratchLedger::~ScratchLedger() {
  std::error_code ignored;
  for (const char* end : {"", "-journal", "-wal", "-shm"}) fs::remove(file_.string() + end, ignored);
}

}  // namespace runner
