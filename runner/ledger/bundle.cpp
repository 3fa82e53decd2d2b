#include "runner/ledger/bundle.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"
#include "runner/base/secrets.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/row_copy.hpp"

namespace runner {

namespace {

constexpr size_t part_bytes = 8U << 20;

/// An empty bundle: the tables of a ledger, and those of files.
void create_bundle(const fs::path& file) {
  std::error_code ignored;
  fs::remove(file, ignored);
  sqlite::Database bundle(file, sqlite::Access::create);
  // A bundle that is not complete is thrown away, so nothing needs to be synced before the end.
  bundle.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off");
  migrate(bundle);
  bundle.execute(
      "CREATE TABLE bundled (id TEXT PRIMARY KEY, digest TEXT NOT NULL) STRICT;"
      "CREATE TABLE bundled_file (file INTEGER PRIMARY KEY, run TEXT NOT NULL, path TEXT NOT NULL, bytes INTEGER NOT "
      "NULL, "
      "mode INTEGER NOT NULL, UNIQUE (run, path)) STRICT;"
      "CREATE TABLE bundled_part (file INTEGER NOT NULL REFERENCES bundled_file, part INTEGER NOT NULL, hash TEXT NOT "
      "NULL, "
      "content BLOB NOT NULL, PRIMARY KEY (file, part)) STRICT;"
      "PRAGMA application_id = " +
      std::to_string(bundle_application_id));
}

/// Whether a file of a run's folder belongs into the bundle. Hidden names are temporary.
bool is_wanted(const fs::path& relative, BundledFiles files) {
  for (const auto& part : relative)
    if (part.string().starts_with('.') || part.string().ends_with(".tmp")) return false;
  const std::string top = relative.begin()->string();
  const bool in_folder_itself = std::next(relative.begin()) == relative.end();
  if (in_folder_itself || files == BundledFiles::all) return true;
  if (top == "logs") return files == BundledFiles::logs;
  return files == BundledFiles::checkpoints && (top == "checkpoints" || top == "artifacts");
}

std::vector<fs::path> wanted_files(const fs::path& folder, BundledFiles files) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code failed;
    const fs::path relative = entry->path().lexically_relative(folder);
    if (fs::is_regular_file(entry->symlink_status(failed)) && is_wanted(relative, files)) found.push_back(relative);
  }
  if (error) throw environment_error("cannot list {}: {}", folder.string(), error.message());
  std::ranges::sort(found);
  return found;
}

int64_t add_file(sqlite::Database& database, const std::string& run, const fs::path& folder, const fs::path& path) {
  std::ifstream file(folder / path, std::ios::binary);
  struct stat info {};
  if (!file || ::stat((folder / path).c_str(), &info) != 0) {
    // A run that goes on removes old checkpoints.
    throw environment_error("cannot read {}: it was removed meanwhile? Export again", (folder / path).string());
  }
  database.run("INSERT INTO bundle.bundled_file (run, path, bytes, mode) VALUES (?, ?, 0, ?)", run, path.string(),
               static_cast<int64_t>(info.st_mode & 0777));
  const int64_t number = database.last_insert_rowid();
  int64_t bytes = 0, part = 0;
  std::string content;
  do {
    content.resize(part_bytes);
    file.read(content.data(), static_cast<std::streamsize>(part_bytes));
    content.resize(static_cast<size_t>(file.gcount()));
    if (file.bad()) throw environment_error("cannot read {}", (folder / path).string());
    if (content.empty()) break;
    database.run("INSERT INTO bundle.bundled_part (file, part, hash, content) VALUES (?, ?, ?, CAST(? AS BLOB))",
                 number, part++, xxh3_hex(content), content);
    bytes += std::ssize(content);
    fault_point("bundle");
  } while (file);
  database.run("UPDATE bundle.bundled_file SET bytes = ? WHERE file = ?", bytes, number);
  return bytes;
}

/// The record of a run that goes on is one of an attempt that has ended: whoever imports it does not see the process.
void end_running(sqlite::Database& database) {
  database.execute(
      "UPDATE bundle.run SET status = 'lost', ended = (SELECT max(heartbeat) FROM bundle.attempt AS a WHERE a.run = "
      "run.run) "
      "WHERE status = 'running';"
      "UPDATE bundle.attempt SET ended = heartbeat WHERE ended IS NULL");
}

/// Whether the recipe of a run has secrets, which its row has as "***".
bool has_secrets(sqlite::Database& database, const std::string& id) {
  auto row = database.query(
      "SELECT json_type(annotations, '$.redacted') IS NOT NULL OR EXISTS (SELECT 1 FROM main.config WHERE hash IN "
      "(recipe, resolved) AND instr(content, ?)) FROM main.run WHERE id = ?",
      std::string(redacted), id);
  return row.step() && row.integer(0) != 0;
}

int64_t row_of(sqlite::Database& database, const std::string& schema, const std::string& id) {
  auto row = database.query("SELECT run FROM " + schema + ".run WHERE id = ?", id);
  if (!row.step()) throw usage_error("there is no run {} in {}", id, database.path().string());
  return row.integer(0);
}

BundleSummary fill(sqlite::Database& database, const fs::path& home, const std::vector<std::string>& runs,
                   BundledFiles files) {
  BundleSummary summary{.runs = std::ssize(runs)};
  RowCopy rows(database, "main", "bundle");
  for (const auto& id : runs) rows.copy(row_of(database, "main", id));
  for (const auto& id : runs) rows.copy_edges(row_of(database, "main", id));
  end_running(database);
  for (const auto& id : runs) {
    const int64_t copied = row_of(database, "bundle", id);
    database.run("INSERT INTO bundle.bundled (id, digest) VALUES (?, ?)", id, run_digest(database, "bundle", copied));
    auto row = database.query("SELECT folder FROM main.run WHERE id = ?", id);
    RUNNER_CHECK(row.step());
    const fs::path folder = home / row.text(0);
    database.run("UPDATE bundle.run SET folder = 'runs/' || id, deleted = NULL, archived = NULL WHERE run = ?", copied);
    if (!fs::is_directory(folder)) continue;
    const bool withhold = has_secrets(database, id);
    for (const auto& path : wanted_files(folder, files)) {
      if (withhold && (path == "recipe.toml" || path == "resolved.toml")) {
        if (summary.withheld.empty() || summary.withheld.back() != id) summary.withheld.push_back(id);
        continue;
      }
      summary.bytes += add_file(database, id, folder, path);
      ++summary.files;
    }
  }
  return summary;
}

}  // namespace

BundleSummary write_bundle(const std::string& home, const std::vector<std::string>& runs, const fs::path& file,
                           BundledFiles files) {
  const fs::path temporary = file.string() + ".tmp";
  BundleSummary summary;
  try {
    create_bundle(temporary);
    {
      const auto database = open_to_read(fs::path(home) / "ledger.db");
      if (!database) throw usage_error("there is no ledger in {}; RUNNER_HOME=FOLDER names another one", home);
      if (stored_version(*database) > std::ssize(migrations()))
        throw environment_error("the ledger in {} was written by a newer runner: export the bundle with that one",
                                home);
      database->run("ATTACH ? AS bundle", temporary.string());
      database->execute("PRAGMA bundle.journal_mode = off; PRAGMA bundle.synchronous = off; BEGIN");
      summary = fill(*database, home, runs, files);
      database->execute("COMMIT");
    }
    sync_path(temporary);
    fault_point("bundle written");
    std::error_code error;
    fs::rename(temporary, file, error);
    if (error) throw environment_error("cannot write {}: {}", file.string(), error.message());
    sync_path(fs::absolute(file).parent_path());
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
  return summary;
}

}  // namespace runner
