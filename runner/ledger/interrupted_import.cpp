#include "runner/ledger/interrupted_import.hpp"

#include <sstream>

#include "runner/base/error.hpp"
#include "runner/base/quoting.hpp"
#include "runner/ledger/hidden_folders.hpp"
#include "runner/ledger/ledger_impl.hpp"

namespace runner {

namespace {

constexpr const char* replaces_word = "replaces";

}  // namespace

void mark_import(const fs::path& folder, const std::string& digest, bool replaces) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw environment_error("cannot make the folder {}: {}", folder.string(), error.message());
  write_file_atomic(folder / import_marker, replaces ? digest + " " + replaces_word : digest);
}

std::optional<InterruptedImport> interrupted_import(sqlite::Database& database, const std::string& id,
                                                    const fs::path& folder) {
  std::error_code error;
  if (!fs::is_regular_file(folder / import_marker, error)) return std::nullopt;
  std::istringstream text(read_file(folder / import_marker));
  InterruptedImport found;
  std::string word;
  text >> found.digest >> word;
  found.replaces = word == replaces_word;
  auto row = database.query(
      "SELECT source FROM main.imported JOIN main.run USING (run) WHERE id = ? AND digest = ? ORDER BY imported DESC",
      id, found.digest);
  if (!row.step()) return std::nullopt;
  found.source = row.text(0);
  return found;
}

void refuse_interrupted_import(sqlite::Database& database, const std::string& id, const fs::path& folder) {
  if (const auto import = interrupted_import(database, id, folder))
    throw environment_error(
        "the folder {} does not have the files that belong to the record of run {}, because an import was killed: "
        "`runner import {}` completes it",
        folder.string(), id, shell_word(import->source));
}

void refuse_interrupted_import(const std::string& home, const std::string& id, const fs::path& folder) {
  if (const auto database = open_to_read(fs::path(home) / "ledger.db"))
    refuse_interrupted_import(*database, id, folder);
}

}  // namespace runner
