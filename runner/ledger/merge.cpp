#include "runner/ledger/merge.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "runner/base/clock.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/bundle.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/live_uses.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/references.hpp"
#include "runner/ledger/row_copy.hpp"

namespace runner {

namespace {

using Outcome = MergedRun::Outcome;

/// In the folder of a run that is being added. Whoever finds it in a folder without a run knows that an import was killed there.
constexpr const char* marker = ".importing";

bool is_run_id(const std::string& id) {
  return !id.empty() && id.front() != '.' && std::ranges::all_of(id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

class Merge {
 public:
  Merge(const std::string& home, const fs::path& file, bool replace)
      : home_(home), replace_(replace), source_(file), source_name_(fs::absolute(file).lexically_normal().string()) {
    { Ledger ledger(home, Ledger::Mode::write); }  // creates or migrates it, and marks lost runs
    prepare_bundle();
    database_ = std::make_unique<sqlite::Database>(home_ / "ledger.db", sqlite::Access::existing);
    database_->run("ATTACH ? AS bundle", bundle_.string());
    read_runs();
  }
  ~Merge() {
    std::error_code ignored;
    for (const auto& [id, folder] : extracted_) fs::remove_all(folder, ignored);
    database_.reset();
    if (bundle_ != source_) fs::remove(bundle_, ignored);
  }
  Merge(const Merge&) = delete;

  std::vector<MergedRun> run() {
    for (auto& merged : runs_) decide(merged);
    for (const auto& merged : runs_)
      if (takes(merged)) extract(merged.id);
    fault_point("import extracted");
    {
      sqlite::Transaction transaction(*database_);
      for (auto& merged : runs_) {
        const Outcome before = merged.outcome;
        decide(merged);
        if (before != merged.outcome)
          throw environment_error("run {} changed in this ledger while the bundle was read: import it again",
                                  merged.id);
      }
      for (const auto& merged : runs_)
        if (takes(merged)) take(merged);
      for (const auto& merged : runs_)
        if (takes(merged)) RowCopy(*database_, "bundle", "main").copy_edges(row_of("bundle", merged.id));
      fault_point("import rows");
      transaction.commit();
    }
    for (const auto& merged : runs_)
      if (merged.outcome == Outcome::added) extracted_.erase(merged.id);  // they are in place now
    fault_point("import committed");
    for (const auto& merged : runs_) finish(merged);
    return runs_;
  }

 private:
  bool takes(const MergedRun& merged) const {
    return merged.outcome == Outcome::added || merged.outcome == Outcome::updated;
  }
  int64_t row_of(const std::string& schema, const std::string& id) const {
    auto row = database_->query("SELECT run FROM " + schema + ".run WHERE id = ?", id);
    return row.step() ? row.integer(0) : 0;
  }

  void prepare_bundle() {
    if (!fs::is_regular_file(source_)) throw usage_error("there is no file {}", source_.string());
    int64_t version = 0;
    {
      sqlite::Database bundle(source_, sqlite::Access::immutable);
      if (bundle.integer("PRAGMA application_id") != bundle_application_id)
        throw usage_error("{} is not a bundle of runner (runner export --bundle RUN -o FILE writes one)",
                          source_.string());
      version = bundle.integer("PRAGMA user_version");
      if (bundle.text("PRAGMA quick_check") != "ok")
        throw environment_error("the bundle {} is damaged", source_.string());
    }
    if (version > std::ssize(migrations()))
      throw environment_error(
          "the bundle {} has schema {}, and this runner knows schemas up to {}: import it with a newer runner",
          source_.string(), version, migrations().size());
    bundle_ = source_;
    if (version == std::ssize(migrations())) return;
    // An older bundle gets the tables of today, in a copy.
    bundle_ = home_ / (".import." + std::to_string(::getpid()) + ".tmp");
    fs::copy_file(source_, bundle_, fs::copy_options::overwrite_existing);
    sqlite::Database copy(bundle_, sqlite::Access::existing);
    copy.execute("PRAGMA application_id = " + std::to_string(ledger_application_id));
    migrate(copy, migrations(), /*copies=*/false);
  }

  void read_runs() {
    auto rows = database_->query("SELECT id, name, digest FROM bundle.bundled JOIN bundle.run USING (id) ORDER BY id");
    while (rows.step()) {
      if (!is_run_id(rows.text(0)))
        throw environment_error("the bundle {} is damaged: it has a run \"{}\"", source_.string(), rows.text(0));
      runs_.push_back({.id = rows.text(0), .name = rows.text(1), .outcome = Outcome::added, .why = ""});
      digests_[rows.text(0)] = rows.text(2);
    }
  }

  /// The states of the run that were imported into this schema before.
  std::set<std::string> imported(const std::string& schema, int64_t run) const {
    std::set<std::string> digests;
    auto rows = database_->query("SELECT digest FROM " + schema + ".imported WHERE run = ?", run);
    while (rows.step()) digests.insert(rows.text(0));
    return digests;
  }

  void decide(MergedRun& merged) const {
    const int64_t here = row_of("main", merged.id);
    merged.outcome = Outcome::added;
    if (here == 0) return;
    const int64_t there = row_of("bundle", merged.id);
    const std::string& digest = digests_.at(merged.id);
    const std::string own = run_digest(*database_, "main", here);
    merged.outcome = Outcome::unchanged;
    if (own == digest || imported("main", here).contains(digest)) return;
    merged.outcome = Outcome::conflict;
    if (database_->query("SELECT 1 FROM main.run WHERE run = ? AND deleted IS NOT NULL", here).step()) {
      merged.why = "it is in the trash here: `runner restore " + merged.id + "` brings it back";
      return;
    }
    if (const auto use = live_use_of(*database_, home_, here); !use.empty()) {
      merged.why = use;
      return;
    }
    if (imported("bundle", there).contains(own) || replace_) {
      merged.outcome = Outcome::updated;
      return;
    }
    merged.why = "it differs here in " + run_differences(*database_, "main", here, "bundle", there);
  }

  fs::path hidden_folder(const std::string& id) const { return home_ / "runs" / ("." + id + ".import"); }

  /// Writes the run's files into a hidden folder, next to the folder that they will be in.
  void extract(const std::string& id) {
    auto files = database_->query("SELECT file, path, mode FROM bundle.bundled_file WHERE run = ? ORDER BY file", id);
    const fs::path folder = hidden_folder(id);
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    bool any = false;
    while (files.step()) {
      const fs::path path = folder / fs::path(files.text(1));
      if (fs::path(files.text(1)).is_absolute() || !relative_below(folder, path))
        throw environment_error("the bundle {} is damaged: it has a file \"{}\"", source_.string(), files.text(1));
      if (!any) extracted_[id] = folder;
      any = true;
      write_parts(files.integer(0), path);
      fs::permissions(path, fs::perms(files.integer(2) & 0777), ignored);
    }
    if (any) write_file_atomic(folder / marker, digests_.at(id));
  }

  void write_parts(int64_t file, const fs::path& path) {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    std::ofstream out(path, std::ios::binary);
    auto parts = database_->query("SELECT hash, content FROM bundle.bundled_part WHERE file = ? ORDER BY part", file);
    while (parts.step()) {
      const std::string content = parts.text(1);
      if (xxh3_hex(content) != parts.text(0))
        throw environment_error("the bundle {} is damaged: the content of {} does not have its digest",
                                source_.string(), path.filename().string());
      out.write(content.data(), std::ssize(content));
      fault_point("import");
    }
    out.close();
    if (!out) throw environment_error("cannot write {}: is the disk full?", path.string());
    sync_path(path);
  }

  void take(const MergedRun& merged) {
    auto& database = *database_;
    const int64_t there = row_of("bundle", merged.id), here = row_of("main", merged.id);
    std::string folder = "runs/" + merged.id;
    std::optional<double> archived;
    if (here != 0) {
      auto row = database.query("SELECT folder, archived FROM main.run WHERE run = ?", here);
      RUNNER_CHECK(row.step());
      folder = row.text(0);
      archived = row.optional_real(1);
      database.run("CREATE TEMP TABLE kept_trial AS SELECT sweep, number FROM main.trial WHERE run = ?", here);
      database.run(
          "CREATE TEMP TABLE kept_edge AS SELECT nullif(source, ?1) AS source, nullif(target, ?1) AS target, kind FROM "
          "main.edge "
          "WHERE source = ?1 OR target = ?1",
          here);
      delete_run_rows(database, here);
    }
    const int64_t run = RowCopy(database, "bundle", "main").copy(there);
    database.run("UPDATE main.run SET folder = ?, archived = ?, deleted = NULL WHERE run = ?", folder, archived, run);
    note_config(database, run);
    if (here != 0) {
      database.run("UPDATE main.trial SET run = ? WHERE (sweep, number) IN (SELECT sweep, number FROM temp.kept_trial)",
                   run);
      database.run(
          "INSERT OR IGNORE INTO main.edge (source, target, kind) SELECT ifnull(source, ?1), ifnull(target, ?1), kind "
          "FROM "
          "temp.kept_edge",
          run);
      database.execute("DROP TABLE temp.kept_trial; DROP TABLE temp.kept_edge");
    }
    database.run("INSERT INTO main.imported (run, time, kind, source, origin, digest) VALUES (?, ?, 'bundle', ?, ?, ?)",
                 run, wall_seconds(), source_name_, merged.id, digests_.at(merged.id));
    if (here == 0) move_into_place(merged.id);
  }

  /// Gives the extracted folder of a new run its name, in the moment before the commit.
  void move_into_place(const std::string& id) {
    if (!extracted_.contains(id)) return;
    const fs::path folder = home_ / "runs" / id;
    std::error_code error;
    if (fs::exists(folder / marker)) fs::remove_all(folder, error);  // of an import that was killed here
    if (fs::exists(folder))
      throw environment_error("the folder {} exists, and no run of this ledger has it: move it away, and import again",
                              folder.string());
    fs::rename(extracted_.at(id), folder, error);
    if (error) throw environment_error("cannot make the folder {}: {}", folder.string(), error.message());
    extracted_.at(id) = folder;  // removed if the commit fails
  }

  /// After the commit: the marker goes, and files of a run that was here before are put into its folder.
  void finish(const MergedRun& merged) {
    std::error_code ignored;
    const auto found = extracted_.find(merged.id);
    if (merged.outcome == Outcome::updated && found != extracted_.end()) {
      const fs::path from = found->second;
      extracted_.erase(found);  // if the files cannot be added, they stay for the next import
      add_files(merged.id, from);
    }
    // Rows of this state are here already, but an import was killed before it had added the files.
    const fs::path left = hidden_folder(merged.id);
    if (merged.outcome == Outcome::unchanged && fs::exists(left / marker) &&
        read_file(left / marker) == digests_.at(merged.id))
      add_files(merged.id, left);
    fs::remove(home_ / "runs" / merged.id / marker, ignored);
  }

  /// Moves the files into the run's folder, and removes `from`. Throws Error(environment); a later import then continues.
  void add_files(const std::string& id, const fs::path& from) const {
    const auto move = [&](const fs::path& file, const fs::path& target) {
      std::error_code failed;
      fs::rename(file, target, failed);
      if (failed)
        throw environment_error("cannot move {} to {}: {}; import the bundle again", file.string(), target.string(),
                                failed.message());
    };
    auto row = database_->query("SELECT folder FROM main.run WHERE id = ?", id);
    RUNNER_CHECK(row.step());
    const fs::path to = home_ / row.text(0);
    std::error_code error;
    fs::create_directories(to / "checkpoints", error);
    // A checkpoint is complete or not there: its folder moves as a whole.
    for (fs::directory_iterator entry(from / "checkpoints", error), end; !error && entry != end;
         entry.increment(error)) {
      if (!fs::exists(to / "checkpoints" / entry->path().filename()))
        move(entry->path(), to / "checkpoints" / entry->path().filename());
    }
    error.clear();
    for (fs::recursive_directory_iterator entry(from, error), end; !error && entry != end; entry.increment(error)) {
      const fs::path relative = entry->path().lexically_relative(from);
      std::error_code failed;
      if (relative == "checkpoints") entry.disable_recursion_pending();
      if (!entry->is_regular_file(failed) || relative == marker) continue;
      fs::create_directories((to / relative).parent_path(), failed);
      move(entry->path(), to / relative);
    }
    fs::remove_all(from, error);
  }

  fs::path home_;
  bool replace_;
  fs::path source_, bundle_;
  std::string source_name_;
  std::unique_ptr<sqlite::Database> database_;
  std::vector<MergedRun> runs_;
  std::map<std::string, std::string> digests_;
  std::map<std::string, fs::path> extracted_;
};

}  // namespace

std::vector<MergedRun> merge_bundle(const std::string& home, const fs::path& file, bool replace) {
  return Merge(home, file, replace).run();
}

}  // namespace runner
