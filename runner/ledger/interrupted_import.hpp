// Imports of bundles that were killed between the commit of a run's rows and the move of its files. The run's folder then has a marker
// with the digest of the state that the rows are of, and the folder's files are those of an earlier state.
#pragma once
#include <optional>
#include <string>

#include "runner/base/files.hpp"
#include "runner/ledger/sqlite.hpp"

namespace runner {

struct InterruptedImport {
  std::string digest;     ///< of the imported state, as in the table `imported`
  bool replaces = false;  ///< the state does not go on from the one before, so no file of that one stays
  std::string source;     ///< the bundle
};

/// Writes the marker. Throws Error(environment).
void mark_import(const fs::path& folder, const std::string& digest, bool replaces);

/// The interrupted import of run `id`; nothing if there was none, or if it was killed before its commit.
std::optional<InterruptedImport> interrupted_import(sqlite::Database& database, const std::string& id,
                                                    const fs::path& folder);

/// Throws Error(environment) if the files in the run's folder are not those of its record, and says how to complete them.
void refuse_interrupted_import(sqlite::Database& database, const std::string& id, const fs::path& folder);
/// Checks the files in the run's folder against its record in the ledger in `home`.
void refuse_interrupted_import(const std::string& home, const std::string& id, const fs::path& folder);

}  // namespace runner
