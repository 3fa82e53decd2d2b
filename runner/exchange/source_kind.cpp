// Which program has written a file or folder of runs.
#include <fstream>

#include "runner/exchange/import_runs.hpp"
#include "runner/ledger/bundle.hpp"

namespace runner {

namespace {

bool any_file(const fs::path& folder, const std::function<bool(const fs::path&)>& is_it) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (is_it(entry->path())) return true;
  return false;
}

bool is_events(const fs::path& path) { return path.filename().string().find("tfevents") != std::string::npos; }

}  // namespace

std::string kind_of_source(const fs::path& path) {
  if (fs::is_directory(path)) {
    if (any_file(path, is_events)) return "tensorboard";
    if (any_file(path, [](const fs::path& file) { return file.extension() == ".wandb"; })) return "wandb";
    return "";
  }
  char head[100] = {};
  std::ifstream(path, std::ios::binary).read(head, sizeof head);
  const std::string_view start(head, sizeof head);
  if (start.starts_with(":W&B")) return "wandb";
  if (is_events(path)) return "tensorboard";
  if (start.starts_with("SQLite format 3")) {
    sqlite::Database database(path, sqlite::Access::immutable);
    if (database.integer("PRAGMA application_id") == bundle_application_id) return "bundle";
    const char* tables =
        "SELECT count(*) FROM sqlite_schema WHERE name IN ('runs', 'metrics', 'params', 'experiments')";
    return database.integer(tables) == 4 ? "mlflow" : "";
  }
  return path.extension() == ".csv" ? "csv" : "";
}

}  // namespace runner
