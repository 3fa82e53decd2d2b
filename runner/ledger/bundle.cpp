#include "runner/ledger/bundle.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/secrets.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/bundle_files.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/row_copy.hpp"
#include "runner/ledger/spool.hpp"

namespace runner {

namespace {

/// An empty bundle: the tables of a ledger, and those of files.
void create_bundle(const fs::path& file) {
  sqlite::Database bundle(file, sqlite::Access::create);
  // A bundle that is not complete is thrown away, so nothing needs to be synced before the end.
  bundle.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off");
  migrate(bundle);
  bundle.execute("CREATE TABLE bundled (id TEXT PRIMARY KEY, digest TEXT NOT NULL, files TEXT) STRICT");
  bundle.execute(bundle_file_tables);
  bundle.execute("PRAGMA application_id = " + std::to_string(bundle_application_id));
}

/// Whether a file of a run's folder belongs into the bundle. Hidden names are temporary.
bool is_wanted(const fs::path& relative, BundledFiles files) {
  for (const auto& part : relative)
    if (part.string().starts_with('.') || part.string().ends_with(".tmp")) return false;
  if (relative.filename().string().starts_with(spool_in("").string())) return false;
  const std::string top = relative.begin()->string();
  const bool in_folder_itself = std::next(relative.begin()) == relative.end();
  if (in_folder_itself || files == BundledFiles::all) return true;
  if (top == "logs") return files == BundledFiles::logs;
  return files == BundledFiles::checkpoints && (top == "checkpoints" || top == "artifacts");
}

/// Whether a path is that of a checkpoint, or of the folder that has them.
bool may_be_linked(const fs::path& relative) {
  const auto depth = std::distance(relative.begin(), relative.end());
  return *relative.begin() == "checkpoints" && depth <= 3;
}

/// The files of a folder that belong into the bundle. Checkpoints that were moved to another disk are links.
class WantedFiles {
 public:
  WantedFiles(fs::path folder, BundledFiles files) : folder_(std::move(folder)), files_(files) {
    search({});
    std::ranges::sort(found_);
    std::ranges::sort(links_);
  }
  const std::vector<fs::path>& found() const { return found_; }
  const std::vector<fs::path>& links() const { return links_; }

 private:
  void search(const fs::path& below) {
    std::error_code error;
    for (fs::directory_iterator entry(folder_ / below, error), end; !error && entry != end; entry.increment(error)) {
      std::error_code failed;
      const fs::path relative = below / entry->path().filename();
      const bool is_link = entry->is_symlink(failed), is_folder = entry->is_directory(failed);
      if (is_folder && (!is_link || may_be_linked(relative))) {
        if (files_ != BundledFiles::settings && !relative.filename().string().starts_with('.')) search(relative);
      } else if (is_wanted(relative, files_)) {
        if (is_link && !may_be_linked(relative))
          links_.push_back(relative);
        else if (fs::is_regular_file(entry->path(), failed))
          found_.push_back(relative);
      }
    }
    if (error) throw environment_error("cannot list {}: {}", (folder_ / below).string(), error.message());
  }

  fs::path folder_;
  BundledFiles files_;
  std::vector<fs::path> found_, links_;
};

/// The record of a run that goes on is one of an attempt that has ended: whoever imports it does not see the process.
void end_running(sqlite::Database& database) {
  database.execute(
      "UPDATE bundle.run SET status = 'lost', ended = max(started, (SELECT max(heartbeat) FROM bundle.attempt AS a "
      "WHERE a.run = run.run)) WHERE status = 'running';"
      "UPDATE bundle.attempt SET ended = max(heartbeat, started) WHERE ended IS NULL;"
      "UPDATE bundle.sweep SET status = 'interrupted', ended = max(heartbeat, started) WHERE status = 'running';"
      "UPDATE bundle.trial SET status = 'waiting' WHERE status = 'running'");
}

/// Whether the recipe of a run has secrets, which its row has as "***". Rows of earlier versions do not name their keys. Comments may
/// have "***", so only values count.
bool has_secrets(sqlite::Database& database, const std::string& id) {
  auto row = database.query(
      "SELECT json_type(annotations, '$.redacted') IS NOT NULL OR EXISTS (SELECT 1 FROM main.config, "
      "json_tree(content) WHERE hash = run.config AND type = 'text' AND instr(atom, ?)) FROM main.run WHERE id = ?",
      std::string(redacted), id);
  return row.step() && row.integer(0) != 0;
}

/// The step of the checkpoint that a file is of, as in checkpoints/step-000010/manifest.json; nothing for other files.
std::optional<int64_t> checkpoint_step(const fs::path& relative) {
  constexpr std::string_view begin = "step-";
  auto part = relative.begin();
  if (*part != "checkpoints" || ++part == relative.end()) return std::nullopt;
  const std::string name = part->string();
  if (!name.starts_with(begin)) return std::nullopt;
  return parse_number<int64_t>(std::string_view(name).substr(begin.size()));
}

int64_t row_of(sqlite::Database& database, const std::string& schema, const std::string& id) {
  auto row = database.query("SELECT run FROM " + schema + ".run WHERE id = ?", id);
  if (!row.step()) throw usage_error("there is no run {} in {}", id, database.path().string());
  return row.integer(0);
}

/// Adds the files of the run's folder.
void add_files(sqlite::Database& database, const std::string& id, const fs::path& folder, BundledFiles files,
               BundleSummary& summary) {
  const bool withhold = has_secrets(database, id);
  if (withhold) summary.withheld.push_back(id);
  if (!fs::is_directory(folder)) return;
  refuse_interrupted_import(database, id, folder);
  const int64_t steps = database.integer("SELECT steps FROM main.run WHERE id = ?", id);
  std::set<std::string> newer;
  const auto add = [&](int64_t bytes) {
    summary.bytes += bytes;
    ++summary.files;
  };
  const WantedFiles wanted(folder, files);
  for (const auto& path : wanted.links()) summary.links_left.push_back((folder / path).string());
  for (const auto& path : wanted.found()) {
    if (withhold && path == "recipe.toml") continue;
    if (withhold && path == "resolved.toml") {
      const char* resolved = "SELECT content FROM main.config JOIN main.run ON hash = resolved WHERE id = ?";
      add(add_bundled_text(database, id, path, database.text(resolved, id)));
      continue;
    }
    if (const auto step = checkpoint_step(path); step && *step > steps) {
      newer.insert((folder / *path.begin() / *std::next(path.begin())).string());
      continue;
    }
    if (*path.begin() == "logs") ++summary.log_files;
    add(add_bundled_file(database, id, path, folder / path));
  }
  summary.newer_left.insert(summary.newer_left.end(), newer.begin(), newer.end());
}

/// The statements of one transaction, which reads the ledger as it is at one moment.
BundleSummary fill(sqlite::Database& database, const fs::path& home, const std::vector<std::string>& runs,
                   BundledFiles files) {
  BundleSummary summary{.runs = std::ssize(runs)};
  RowCopy rows(database, "main", "bundle");
  for (const auto& id : runs) rows.copy(row_of(database, "main", id));
  for (const auto& id : runs) {
    rows.copy_edges(row_of(database, "main", id));
    rows.copy_trial(row_of(database, "main", id), /*with_recipe=*/!has_secrets(database, id));
  }
  end_running(database);
  for (const auto& id : runs) {
    const int64_t copied = row_of(database, "bundle", id);
    database.run("INSERT INTO bundle.bundled (id, digest) VALUES (?, ?)", id, run_digest(database, "bundle", copied));
    const std::string folder = database.text("SELECT folder FROM main.run WHERE id = ?", id);
    database.run("UPDATE bundle.run SET folder = 'runs/' || id, deleted = NULL, archived = NULL WHERE run = ?", copied);
    add_files(database, id, home / folder, files, summary);
    database.run("UPDATE bundle.bundled SET files = ? WHERE id = ?", files_digest(database, id), id);
  }
  return summary;
}

}  // namespace

BundleSummary write_bundle(const std::string& home, const std::vector<std::string>& runs, const fs::path& file,
                           BundledFiles files) {
  BundleSummary summary;
  publish_file(file, [&](const fs::path& temporary) {
    create_bundle(temporary);
    const auto database = open_to_read(fs::path(home) / "ledger.db");
    if (!database) throw usage_error("there is no ledger in {}; RUNNER_HOME=FOLDER names another one", home);
    if (stored_version(*database) > std::ssize(migrations()))
      throw environment_error("the ledger in {} was written by a newer runner: export the bundle with that one", home);
    database->run("ATTACH ? AS bundle", temporary.string());
    database->execute("PRAGMA bundle.journal_mode = off; PRAGMA bundle.synchronous = off; BEGIN");
    summary = fill(*database, home, runs, files);
    database->execute("COMMIT");
    fault_point("bundle written");
  });
  return summary;
}

namespace {

/// A column whose texts are JSON, and what they may be. `refers`: it has digests of texts in the table config.
struct JsonColumn {
  const char *table, *column;
  enum class Shape { object, object_or_null, texts } shape = Shape::object;
  bool refers = false;
};
constexpr JsonColumn json_columns[] = {
    {.table = "run", .column = "tags", .shape = JsonColumn::Shape::texts},
    {.table = "run", .column = "argv", .shape = JsonColumn::Shape::texts},
    {.table = "run", .column = "git", .shape = JsonColumn::Shape::object_or_null},
    {.table = "run", .column = "host", .shape = JsonColumn::Shape::object_or_null},
    {.table = "run", .column = "annotations"},
    {.table = "run", .column = "config", .refers = true},
    {.table = "run", .column = "origins", .shape = JsonColumn::Shape::object_or_null, .refers = true},
    {.table = "run", .column = "plan", .shape = JsonColumn::Shape::object_or_null, .refers = true},
    {.table = "event", .column = "fields"},
    {.table = "artifact", .column = "fields"},
    {.table = "attempt", .column = "argv", .shape = JsonColumn::Shape::texts},
    {.table = "attempt", .column = "git", .shape = JsonColumn::Shape::object_or_null},
    {.table = "attempt", .column = "config", .refers = true},
    {.table = "sweep", .column = "space", .refers = true},
    {.table = "trial", .column = "parameters"},
    {.table = "sweep_history", .column = "entry"},
};

bool has_shape(JsonColumn::Shape shape, const nlohmann::json& value) {
  switch (shape) {
    case JsonColumn::Shape::texts:
      return value.is_array() && std::ranges::all_of(value, [](const auto& item) { return item.is_string(); });
    case JsonColumn::Shape::object_or_null:
      return value.is_object() || value.is_null();
    default:
      return value.is_object();
  }
}

}  // namespace

void check_bundle_tables(sqlite::Database& database, const std::string& name) {
  auto odd = database.query(
      "SELECT name FROM pragma_table_list WHERE schema = 'bundle' AND type <> 'table' AND (name COLLATE NOCASE IN "
      "(SELECT name FROM main.sqlite_schema WHERE type = 'table') OR name COLLATE NOCASE IN ('bundled', "
      "'bundled_file', 'bundled_part'))");
  if (odd.step()) throw usage_error("the bundle {} is damaged: {} is no table", name, odd.text(0));
}

void check_bundle_json(sqlite::Database& database, const std::string& name) {
  for (const auto& [table, column, shape, refers] : json_columns) {
    auto texts = database.query(
        refers ? fmt::format("SELECT ifnull(content, '') FROM bundle.{0} LEFT JOIN bundle.config ON hash = {0}.{1} "
                             "WHERE {0}.{1} IS NOT NULL",
                             table, column)
               : fmt::format("SELECT {1} FROM bundle.{0} WHERE {1} IS NOT NULL", table, column));
    while (texts.step())
      if (!has_shape(shape, foreign_json(texts.text(0))))
        throw usage_error("the bundle {} is damaged: {}.{} has a text that is no JSON {}", name, table, column,
                          shape == JsonColumn::Shape::texts ? "list of texts" : "object");
  }
}

}  // namespace runner
