#include "runner/ledger/merge.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "runner/base/clock.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/bundle.hpp"
#include "runner/ledger/bundle_files.hpp"
#include "runner/ledger/changes.hpp"
#include "runner/ledger/interrupted_import.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/live_uses.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/references.hpp"
#include "runner/ledger/row_copy.hpp"
#include "runner/ledger/run_id.hpp"
#include "runner/ledger/scratch_ledger.hpp"
#include "runner/ledger/source_errors.hpp"
#include "runner/ledger/trash.hpp"

namespace runner {

namespace {

using Outcome = MergedRun::Outcome;

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

class Merge {
 public:
  Merge(const std::string& home, const fs::path& file, bool replace)
      : home_(home), replace_(replace), source_(file), source_name_(fs::absolute(file).lexically_normal().string()) {
    { Ledger ledger(home, Ledger::Mode::write); }  // creates or migrates it, and marks lost runs
    const int64_t version = reading_source(source_, "a bundle of runner", [&] { return checked_version(); });
    const bool is_older = version < std::ssize(migrations());
    if (is_older) upgraded_ = std::make_unique<ScratchLedger>(home_, source_);  // with the tables of today
    database_ = std::make_unique<sqlite::Database>(home_ / "ledger.db", sqlite::Access::existing);
    database_->run("ATTACH ? AS bundle", is_older ? upgraded_->file().string() : source_.string());
    files_ = std::make_unique<BundleFiles>(*database_, home_, source_.string());
    reading_source(source_, "a bundle of runner", [&] { read_runs(is_older); });
  }

  std::vector<MergedRun> run() {
    constexpr int most_tries = 3;
    for (int tries = 1; !try_once(); ++tries) {
      files_->discard();
      if (tries == most_tries)
        throw environment_error("its runs changed in this ledger while the bundle {} was read: import it again",
                                source_.string());
    }
    for (auto& merged : runs_) {
      const bool was_here = merged.outcome == Outcome::updated || merged.outcome == Outcome::unchanged;
      if (merged.outcome == Outcome::conflict) continue;
      const fs::path folder = folder_of(row_of("main", merged.id));
      const auto begun = interrupted_import(*database_, merged.id, folder);
      if (begun && begun->digest != states_.at(merged.id).digest) continue;  // another bundle has the files
      const int64_t files = files_->finish(merged.id, folder, begun && begun->replaces);
      if (was_here) merged.files = files;
    }
    return runs_;
  }

 private:
  struct State {
    std::string digest;   ///< of the bundle's rows
    std::string written;  ///< the same, as the program that wrote the bundle computed it with its schema
  };

  /// Decides, extracts files and adds the rows. Returns false if another process has changed one of the runs meanwhile.
  bool try_once() {
    for (auto& merged : runs_) decide(merged);
    for (const auto& merged : runs_) extract(merged);
    fault_point("import extracted");
    sqlite::Transaction transaction(*database_);
    for (auto& merged : runs_) {
      const Outcome before = merged.outcome;
      decide(merged);
      if (before != merged.outcome) return false;
    }
    for (const auto& merged : runs_)
      if (takes(merged)) take(merged);
    database_->execute(
        "CREATE TEMP TABLE running_there AS SELECT id FROM bundle.sweep WHERE status = 'running' AND id NOT IN (SELECT "
        "id FROM main.sweep WHERE status = 'running')");
    for (const auto& merged : runs_)
      if (takes(merged)) {
        RowCopy rows(*database_, "bundle", "main");
        rows.copy_edges(row_of("bundle", merged.id));
        rows.copy_trial(row_of("bundle", merged.id));
      }
    database_->execute(
        "UPDATE main.sweep SET status = 'interrupted', ended = heartbeat WHERE id IN (SELECT id FROM "
        "temp.running_there);"
        "DROP TABLE temp.running_there");
    fault_point("import rows");
    transaction.commit();
    files_->committed();
    fault_point("import committed");
    return true;
  }

  static bool takes(const MergedRun& merged) {
    return merged.outcome == Outcome::added || merged.outcome == Outcome::updated;
  }
  int64_t row_of(const std::string& schema, const std::string& id) const {
    auto row = database_->query("SELECT run FROM " + schema + ".run WHERE id = ?", id);
    return row.step() ? row.integer(0) : 0;
  }
  fs::path folder_of(int64_t run) const {
    auto row = database_->query("SELECT folder FROM main.run WHERE run = ?", run);
    RUNNER_CHECK(row.step());
    return home_ / row.text(0);
  }

  int64_t checked_version() const {
    if (!fs::is_regular_file(source_)) throw usage_error("there is no file {}", source_.string());
    sqlite::Database bundle(source_, sqlite::Access::immutable);
    if (bundle.integer("PRAGMA application_id") != bundle_application_id)
      throw usage_error("{} is not a bundle of runner (runner export --bundle RUN -o FILE writes one)",
                        source_.string());
    const int64_t version = bundle.integer("PRAGMA user_version");
    if (bundle.text("PRAGMA quick_check") != "ok")
      throw environment_error("the bundle {} is damaged", source_.string());
    if (version > std::ssize(migrations()))
      throw environment_error(
          "the bundle {} has schema {}, and this runner knows schemas up to {}: import it with a newer runner",
          source_.string(), version, migrations().size());
    return version;
  }

  /// A view of a table's name could answer differently each time it is read.
  void check_tables() const {
    auto odd = database_->query(
        "SELECT name FROM bundle.sqlite_schema WHERE (name IN (SELECT name FROM main.sqlite_schema WHERE type = "
        "'table') OR name IN ('bundled', 'bundled_file', 'bundled_part')) AND (type <> 'table' OR sql LIKE 'CREATE "
        "VIRTUAL%')");
    if (odd.step()) throw environment_error("the bundle {} is damaged: {} is no table", source_.string(), odd.text(0));
  }

  /// Later readers take these texts for JSON of the right shape.
  void check_json() const {
    for (const auto& [table, column, shape, refers] : json_columns) {
      auto texts = database_->query(
          refers ? fmt::format("SELECT ifnull(content, '') FROM bundle.{0} LEFT JOIN bundle.config ON hash = {0}.{1} "
                               "WHERE {0}.{1} IS NOT NULL",
                               table, column)
                 : fmt::format("SELECT {1} FROM bundle.{0} WHERE {1} IS NOT NULL", table, column));
      while (texts.step())
        if (!has_shape(shape, foreign_json(texts.text(0))))
          throw environment_error("the bundle {} is damaged: {}.{} has a text that is no JSON {}", source_.string(),
                                  table, column, shape == JsonColumn::Shape::texts ? "list of texts" : "object");
    }
  }

  /// Reads which runs there are, and compares texts and rows with their digests. A program with an older schema computed the digests
  /// of rows differently.
  void read_runs(bool is_older) {
    check_tables();
    auto texts = database_->query("SELECT hash, content FROM bundle.config");
    while (texts.step())
      if (xxh3_hex(texts.text(1)) != texts.text(0))
        throw environment_error("the bundle {} is damaged: a text does not have its digest", source_.string());
    auto rows =
        database_->query("SELECT id, name, digest, run.run FROM bundle.bundled JOIN bundle.run USING (id) ORDER BY id");
    while (rows.step()) {
      const std::string id = rows.text(0);
      if (!is_run_id(id))
        throw environment_error("the bundle {} is damaged: it has a run \"{}\"", source_.string(), id);
      runs_.push_back({.id = id, .name = rows.text(1), .outcome = Outcome::added, .why = ""});
      auto& state =
          states_[id] = {.digest = run_digest(*database_, "bundle", rows.integer(3)), .written = rows.text(2)};
      if (!is_older && state.digest != state.written)
        throw environment_error("the bundle {} is damaged: the rows of run {} do not have their digest",
                                source_.string(), id);
    }
    check_json();
    rows = database_->query("SELECT id FROM bundle.sweep");
    while (rows.step())
      if (const std::string id = rows.text(0); !is_run_id(id))
        throw environment_error("the bundle {} is damaged: it has a sweep \"{}\"", source_.string(), id);
  }

  /// The states of the run that were imported into this schema before.
  std::set<std::string> imported(const std::string& schema, int64_t run) const {
    std::set<std::string> digests;
    auto rows = database_->query("SELECT digest FROM " + schema + ".imported WHERE run = ?", run);
    while (rows.step()) digests.insert(rows.text(0));
    return digests;
  }

  /// Steps and attempts: two records that agree in them have the same checkpoints.
  std::string training_of(const std::string& schema, int64_t run) const {
    std::string text;
    auto attempts = database_->query("SELECT steps, number, from_step, attempt.started FROM " + schema + ".run JOIN " +
                                         schema + ".attempt USING (run) WHERE run = ? ORDER BY number",
                                     run);
    while (attempts.step())
      text +=
          fmt::format("{} {} {} {}\n", attempts.integer(0), attempts.integer(1), attempts.integer(2), attempts.real(3));
    return text;
  }

  /// When the run last did something, or was edited, as this schema knows.
  double last_activity(const std::string& schema, int64_t run) const {
    auto row = database_->query(
        fmt::format("SELECT max(started, ifnull(ended, 0), "
                    "ifnull((SELECT max(heartbeat) FROM {0}.attempt WHERE run = ?1), 0), "
                    "ifnull((SELECT max(time) FROM {0}.change WHERE run = ?1 AND NOT {1}), 0)) FROM {0}.run "
                    "WHERE run = ?1",
                    schema, is_local_change),
        run);
    RUNNER_CHECK(row.step());
    return row.real(0);
  }

  /// Whether the bundle's state comes after the one here, `own`: it says so, or nothing was changed here since an import, and more
  /// has happened there.
  bool goes_on(int64_t here, int64_t there, const std::string& own) const {
    if (imported("bundle", there).contains(own)) return true;
    return imported("main", here).contains(own) && last_activity("main", here) <= last_activity("bundle", there);
  }

  void decide(MergedRun& merged) const {
    const int64_t here = row_of("main", merged.id);
    merged.outcome = Outcome::added;
    if (here == 0) return;
    const int64_t there = row_of("bundle", merged.id);
    const auto& state = states_.at(merged.id);
    merged.outcome = Outcome::conflict;
    if (database_->query("SELECT 1 FROM main.run WHERE run = ? AND deleted IS NOT NULL", here).step()) {
      merged.why = why_in_trash(merged.id);
      return;
    }
    const std::string own = run_digest(*database_, "main", here);
    const auto known = imported("main", here);
    if (own == state.digest || known.contains(state.digest) || known.contains(state.written)) {
      merged.outcome = Outcome::unchanged;
      return;
    }
    if (const auto use = live_use_of(*database_, home_, here); !use.empty()) {
      merged.why = use;
      return;
    }
    if (replace_ || goes_on(here, there, own)) {
      merged.outcome = Outcome::updated;
      return;
    }
    merged.differs = true;
    merged.why = "it differs here in " + run_differences(*database_, "main", here, "bundle", there);
  }

  void extract(const MergedRun& merged) {
    const int64_t here = row_of("main", merged.id), there = row_of("bundle", merged.id);
    if (merged.outcome == Outcome::added) return files_->extract_new(merged.id);
    if (merged.outcome == Outcome::updated) return files_->extract(merged.id, folder_of(here), /*all=*/true);
    if (merged.outcome == Outcome::conflict) return;
    const fs::path folder = folder_of(here);
    if (const auto begun = interrupted_import(*database_, merged.id, folder)) {
      if (begun->digest == states_.at(merged.id).digest) files_->extract(merged.id, folder, /*all=*/true);
    } else if (training_of("main", here) == training_of("bundle", there)) {
      files_->extract(merged.id, folder, /*all=*/false);
    }
  }

  /// Adds the rows of the run, instead of those that are here.
  void take(const MergedRun& merged) {
    auto& database = *database_;
    const int64_t there = row_of("bundle", merged.id), here = row_of("main", merged.id);
    if (here == 0) {
      const int64_t run = RowCopy(database, "bundle", "main").copy(there);
      database.run("UPDATE main.run SET folder = ?, archived = NULL, deleted = NULL WHERE run = ?", "runs/" + merged.id,
                   run);
      note_import(merged.id, run);
      return files_->place_new(merged.id);
    }
    const bool continued = goes_on(here, there, run_digest(database, "main", here));
    const fs::path folder = folder_of(here);
    const auto begun = interrupted_import(database, merged.id, folder);
    // What was trained here is given up, with its checkpoints.
    const bool replaces =
        (begun && begun->replaces) || (!continued && training_of("main", here) != training_of("bundle", there));
    keep_local_rows(here, continued);
    delete_run_rows(database, here);
    const int64_t run = RowCopy(database, "bundle", "main").copy(there);
    restore_local_rows(run);
    if (!continued) record_change(database, run, "replaced", {}, source_name_);
    note_import(merged.id, run);
    files_->announce(merged.id, folder, states_.at(merged.id).digest, replaces);
  }

  /// Whoever imports a record that goes on does not see its process.
  void note_import(const std::string& id, int64_t run) {
    note_config(*database_, run);
    database_->run(
        "UPDATE main.run SET status = 'lost', ended = ifnull((SELECT max(heartbeat) FROM main.attempt WHERE run = ?1), "
        "started) WHERE run = ?1 AND status = 'running'",
        run);
    database_->run("UPDATE main.attempt SET ended = heartbeat WHERE run = ? AND ended IS NULL", run);
    database_->run(
        "INSERT INTO main.imported (run, time, kind, source, origin, digest) VALUES (?, ?, 'bundle', ?, ?, ?)", run,
        wall_seconds(), source_name_, id, states_.at(id).digest);
    // The state here now comes from the bundle, too, so a later state of it can replace it.
    if (const auto own = run_digest(*database_, "main", run); own != states_.at(id).digest)
      database_->run(
          "INSERT INTO main.imported (run, time, kind, source, origin, digest) VALUES (?, ?, 'bundle', ?, ?, ?)", run,
          wall_seconds(), source_name_, id, own);
  }

  /// What only this ledger knows of a run: its folder, the sweep that it is of, runs that it is linked to, and edits. If the bundle's
  /// state comes after the one here, also the states that were imported before.
  void keep_local_rows(int64_t run, bool with_imports) {
    database_->run("CREATE TEMP TABLE kept_run AS SELECT folder, archived FROM main.run WHERE run = ?", run);
    database_->run(
        "CREATE TEMP TABLE kept_import AS SELECT time, kind, source, origin, digest FROM main.imported WHERE run = ? "
        "AND ?",
        run, with_imports);
    database_->run("CREATE TEMP TABLE kept_trial AS SELECT sweep, number FROM main.trial WHERE run = ?", run);
    database_->run(
        "CREATE TEMP TABLE kept_edge AS SELECT nullif(source, ?1) AS source, nullif(target, ?1) AS target, kind FROM "
        "main.edge WHERE source = ?1 OR target = ?1",
        run);
    database_->run(
        "CREATE TEMP TABLE kept_change AS SELECT time, who, what, before, after FROM main.change WHERE run = ?", run);
  }

  void restore_local_rows(int64_t run) {
    database_->run(
        "UPDATE main.run SET deleted = NULL, (folder, archived) = (SELECT folder, archived FROM temp.kept_run) WHERE "
        "run = ?",
        run);
    database_->run(
        "INSERT INTO main.imported (run, time, kind, source, origin, digest) SELECT ?1, time, kind, source, origin, "
        "digest FROM temp.kept_import AS kept WHERE kept.digest NOT IN (SELECT digest FROM main.imported WHERE run = "
        "?1)",
        run);
    database_->run("UPDATE main.trial SET run = ? WHERE (sweep, number) IN (SELECT sweep, number FROM temp.kept_trial)",
                   run);
    database_->run(
        "INSERT OR IGNORE INTO main.edge (source, target, kind) SELECT ifnull(source, ?1), ifnull(target, ?1), kind "
        "FROM temp.kept_edge",
        run);
    database_->run("INSERT INTO temp.kept_change SELECT time, who, what, before, after FROM main.change WHERE run = ?",
                   run);
    database_->run("DELETE FROM main.change WHERE run = ?", run);
    database_->run(
        "INSERT INTO main.change (run, time, who, what, before, after) SELECT DISTINCT ?, time, who, what, before, "
        "after FROM temp.kept_change ORDER BY time",
        run);
    for (const char* table : {"run", "import", "trial", "edge", "change"})
      database_->execute(std::string("DROP TABLE temp.kept_") + table);
  }

  fs::path home_;
  bool replace_;
  fs::path source_;
  std::string source_name_;
  std::unique_ptr<ScratchLedger> upgraded_;     ///< of a bundle with an older schema
  std::unique_ptr<sqlite::Database> database_;  ///< closed before that file is removed
  std::unique_ptr<BundleFiles> files_;
  std::vector<MergedRun> runs_;
  std::map<std::string, State> states_;
};

}  // namespace

std::vector<MergedRun> merge_bundle(const std::string& home, const fs::path& file, bool replace) {
  return Merge(home, file, replace).run();
}

}  // namespace runner
