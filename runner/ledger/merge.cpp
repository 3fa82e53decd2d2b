#include "runner/ledger/merge.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "runner/base/clock.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/bundle.hpp"
#include "runner/ledger/bundle_files.hpp"
#include "runner/ledger/edits.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/orphans.hpp"
#include "runner/ledger/row_copy.hpp"
#include "runner/ledger/run_id.hpp"
#include "runner/ledger/source_errors.hpp"
#include "runner/ledger/trash.hpp"

namespace runner {

namespace {

using Outcome = MergedRun::Outcome;

/// In `imported`, instead of a digest: the run began here, or was edited here before it came back.
constexpr const char* begun_here = "begun here";

class Merge {
 public:
  Merge(const std::string& home, const fs::path& file, bool replace)
      : home_(home), replace_(replace), source_(file), source_name_(fs::absolute(file).lexically_normal().string()) {
    { Ledger ledger(home, Ledger::Mode::write); }  // creates or migrates it, and marks lost runs
    const int64_t version = reading_source(source_, "a bundle of runner", [&] { return checked_version(); });
    const bool is_older = version < std::ssize(migrations());
    if (is_older)  // with the tables of today
      reading_source(source_, "a bundle of runner",
                     [&] { upgraded_ = std::make_unique<ScratchLedger>(home_, source_); });
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
    for (const auto& text : left_out_) log::warning("{}", text);
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
    add_links();
    fault_point("import rows");
    transaction.commit();
    files_->committed();
    fault_point("import committed");
    return true;
  }

  /// Adds edges and sweeps. They lead only to runs whose state here is the bundle's: a run that began here gets no parent and no sweep from
  /// a bundle that has its id.
  void add_links() {
    database_->execute("CREATE TEMP TABLE bundled_run (run INTEGER PRIMARY KEY)");
    for (const auto& merged : runs_)
      if (takes(merged) || (merged.outcome == Outcome::unchanged && of_import_.contains(merged.id)))
        database_->run("INSERT INTO temp.bundled_run VALUES (?)", row_of("main", merged.id));
    RowCopy rows(*database_, "bundle", "main");
    left_out_.clear();
    for (const auto& merged : runs_) {
      const int64_t here = row_of("main", merged.id), there = row_of("bundle", merged.id);
      if (database_->query("SELECT 1 FROM temp.bundled_run WHERE run = ?", here).step())
        rows.copy_edges(there, /*sources_only=*/true);
      if (!takes(merged)) continue;
      rows.copy_foreign_trial(there, "SELECT run FROM temp.bundled_run");
      note_own_sweeps(merged, here, there);
    }
    database_->execute("DROP TABLE temp.bundled_run");
  }

  /// Remembers sweeps that began here and of which the bundle says that this run is a trial.
  void note_own_sweeps(const MergedRun& merged, int64_t here, int64_t there) {
    auto sweeps = database_->query(
        fmt::format("SELECT id FROM main.sweep AS mine WHERE {} AND id IN (SELECT id FROM bundle.trial JOIN "
                    "bundle.sweep USING (sweep) WHERE run = ?1) AND NOT EXISTS (SELECT 1 FROM main.trial WHERE "
                    "trial.sweep = mine.sweep AND trial.run = ?2)",
                    is_own_sweep),
        there, here);
    while (sweeps.step())
      left_out_.push_back(
          fmt::format("run {} ({}) is no trial of sweep {} here: that sweep began in this ledger, and "
                      "no bundle changes it",
                      merged.id, merged.name, sweeps.text(0)));
  }

  static bool takes(const MergedRun& merged) {
    return merged.outcome == Outcome::added || merged.outcome == Outcome::updated;
  }
  int64_t row_of(const std::string& schema, const std::string& id) const {
    auto row = database_->query("SELECT run FROM " + schema + ".run WHERE id = ?", id);
    return row.step() ? row.integer(0) : 0;
  }
  fs::path folder_of(int64_t run) const {
    return home_ / database_->text("SELECT folder FROM main.run WHERE run = ?", run);
  }

  int64_t checked_version() const {
    if (!fs::is_regular_file(source_)) throw usage_error("there is no file {}", source_.string());
    sqlite::Database bundle(source_, sqlite::Access::immutable);
    if (bundle.integer("PRAGMA application_id") != bundle_application_id)
      throw usage_error("{} is not a bundle of runner (runner export --bundle RUN -o FILE writes one)",
                        source_.string());
    const int64_t version = bundle.integer("PRAGMA user_version");
    if (bundle.text("PRAGMA quick_check") != "ok") throw usage_error("the bundle {} is damaged", source_.string());
    if (version > std::ssize(migrations()))
      throw environment_error(
          "the bundle {} has schema {}, and this runner knows schemas up to {}: import it with a newer runner",
          source_.string(), version, migrations().size());
    return version;
  }

  /// Reads which runs there are, and compares texts and rows with their digests. A program with an older schema computed the digests
  /// of rows differently.
  void read_runs(bool is_older) {
    check_bundle_tables(*database_, source_.string());
    auto texts = database_->query("SELECT hash, content FROM bundle.config");
    while (texts.step())
      if (xxh3_hex(texts.text(1)) != texts.text(0))
        throw usage_error("the bundle {} is damaged: a text does not have its digest", source_.string());
    auto rows =
        database_->query("SELECT id, name, digest, run.run FROM bundle.bundled JOIN bundle.run USING (id) ORDER BY id");
    while (rows.step()) {
      const std::string id = rows.text(0);
      if (!is_run_id(id)) throw usage_error("the bundle {} is damaged: it has a run \"{}\"", source_.string(), id);
      runs_.push_back({.id = id, .name = rows.text(1), .outcome = Outcome::added, .why = ""});
      auto& state =
          states_[id] = {.digest = run_digest(*database_, "bundle", rows.integer(3)), .written = rows.text(2)};
      if (!is_older && state.digest != state.written)
        throw usage_error("the bundle {} is damaged: the rows of run {} do not have their digest", source_.string(),
                          id);
    }
    check_files();
    check_bundle_json(*database_, source_.string());
    rows = database_->query("SELECT id FROM bundle.sweep");
    while (rows.step())
      if (const std::string id = rows.text(0); !is_run_id(id))
        throw usage_error("the bundle {} is damaged: it has a sweep \"{}\"", source_.string(), id);
  }

  /// Compares the files of each run with their digest.
  void check_files() const {
    if (!database_->query("SELECT 1 FROM pragma_table_info('bundled', 'bundle') WHERE name = 'files'").step()) return;
    for (const auto& run : runs_)
      if (files_digest(*database_, run.id) !=
          database_->text("SELECT ifnull(files, '') FROM bundle.bundled WHERE id = ?", run.id))
        throw usage_error("the bundle {} is damaged: the files of run {} do not have their digest", source_.string(),
                          run.id);
  }

  /// The states of the run that were imported into this schema before.
  std::set<std::string> imported(const std::string& schema, int64_t run) const {
    std::set<std::string> digests;
    auto rows =
        database_->query("SELECT digest FROM " + schema + ".imported WHERE run = ? AND digest <> ?", run, begun_here);
    while (rows.step()) digests.insert(rows.text(0));
    return digests;
  }
  bool has_begun_here(int64_t run) const {
    return database_->query("SELECT 1 FROM main.imported WHERE run = ? AND digest = ?", run, begun_here).step();
  }
  /// Sets whether has_begun_here(). What the bundle says of it counts only where it comes from.
  void mark_beginning(const std::string& id, int64_t run, bool here) {
    database_->run("DELETE FROM main.imported WHERE run = ? AND digest = ?", run, begun_here);
    if (here) record_import(id, run, begun_here);
  }
  /// Records that the run came from the bundle in this state.
  void record_import(const std::string& id, int64_t run, const std::string& digest) {
    database_->run(
        "INSERT INTO main.imported (run, time, kind, source, origin, digest) VALUES (?, ?, 'bundle', ?, ?, ?)", run,
        wall_seconds(), source_name_, id, digest);
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
  /// has happened there. Of a run that began here, the bundle must also know an earlier state: its id alone is no secret.
  bool goes_on(int64_t here, int64_t there, const std::string& own) const {
    const auto theirs = imported("bundle", there), ours = imported("main", here);
    if (theirs.contains(own)) return true;
    const auto knows = [&](const std::string& state) { return theirs.contains(state); };
    const bool related = !has_begun_here(here) || std::ranges::any_of(ours, knows);
    return related && ours.contains(own) && last_activity("main", here) <= last_activity("bundle", there);
  }

  void decide(MergedRun& merged) {
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
    if (known.contains(own) && !has_begun_here(here)) of_import_.insert(merged.id);
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
      mark_beginning(merged.id, run, /*here=*/false);
      note_import(merged.id, run);
      return files_->place_new(merged.id);
    }
    const std::string own = run_digest(database, "main", here);
    const bool continued = goes_on(here, there, own);
    const auto known = imported("main", here);
    const bool begun = has_begun_here(here) || (continued ? !known.contains(own) : known.empty());
    const fs::path folder = folder_of(here);
    const auto interrupted = interrupted_import(database, merged.id, folder);
    // Whether the training that was done here is given up, with its checkpoints.
    const bool replaces = (interrupted && interrupted->replaces) ||
                          (!continued && training_of("main", here) != training_of("bundle", there));
    keep_local_rows(here, continued);
    delete_run_rows(database, here);
    const int64_t run = RowCopy(database, "bundle", "main").copy(there);
    restore_local_rows(run);
    if (!continued) record_change(database, run, "replaced", {}, source_name_);
    mark_beginning(merged.id, run, begun);
    note_import(merged.id, run);
    files_->announce(merged.id, folder, states_.at(merged.id).digest, replaces);
  }

  /// Whoever imports a record that goes on does not see its process.
  void note_import(const std::string& id, int64_t run) {
    note_config(*database_, run);
    database_->run(
        "UPDATE main.run SET status = 'lost', ended = max(started, ifnull((SELECT max(heartbeat) FROM main.attempt "
        "WHERE run = ?1), started)) WHERE run = ?1 AND status = 'running'",
        run);
    database_->run("UPDATE main.attempt SET ended = max(heartbeat, started) WHERE run = ? AND ended IS NULL", run);
    record_import(id, run, states_.at(id).digest);
    // The state here now comes from the bundle, too, so a later state of it can replace it.
    if (const auto own = run_digest(*database_, "main", run); own != states_.at(id).digest) record_import(id, run, own);
  }

  /// Keeps the facts of a run that only this ledger knows: its folder, the sweep that it is of, runs that it is linked to, and edits. If
  /// the bundle's state comes after the one here, also the states that were imported before.
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
  std::set<std::string> of_import_;    ///< ids of runs whose state here came with a bundle
  std::vector<std::string> left_out_;  ///< messages of note_own_sweeps()
};

}  // namespace

std::vector<MergedRun> merge_bundle(const std::string& home, const fs::path& file, bool replace) {
  Merge merge(home, file, replace);
  try {
    return merge.run();
  } catch (const sqlite::Failure& failure) {  // the tables here do not take its rows
    if (failure.primary() != SQLITE_CONSTRAINT && failure.primary() != SQLITE_MISMATCH) throw;
    throw usage_error("the bundle {} is damaged: {}", file.string(), failure.what());
  }
}

}  // namespace runner
