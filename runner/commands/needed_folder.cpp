#include "runner/commands/needed_folder.hpp"

#include "runner/base/error.hpp"
#include "runner/ledger/foreign_runs.hpp"
#include "runner/ledger/interrupted_import.hpp"

namespace runner {

fs::path needed_folder(const Ledger& ledger, const std::string& run, const std::string& verb) {
  const fs::path folder = ledger.run_dir(run);
  if (fs::is_directory(folder)) {
    refuse_interrupted_import(ledger_home(), run, folder);
    return folder;
  }
  if (const auto origin = imported_from(ledger_home(), run); !origin.empty())
    throw usage_error(
        "run {} cannot be {}: it was imported from {}, without the files of its folder. Its settings and metrics are "
        "in the ledger",
        run, verb, origin);
  throw usage_error(
      "run {} cannot be {}: its folder {} was moved or deleted, and its checkpoints with it. Its settings, metrics and "
      "events are "
      "still in the ledger; a folder that was moved works again when it is back in its place",
      run, verb, folder.string());
}

}  // namespace runner
