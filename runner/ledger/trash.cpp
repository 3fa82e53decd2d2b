#include "runner/ledger/trash.hpp"

#include <algorithm>

#include "runner/base/clock.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/ledger/edits.hpp"
#include "runner/ledger/hidden_folders.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/orphans.hpp"
#include "runner/ledger/row_copy.hpp"
#include "runner/ledger/run_id.hpp"

namespace runner {

namespace {

/// Whether nothing was added to a folder for a day: an import that goes on has a younger one.
bool is_old(const fs::path& folder) {
  std::error_code error;
  const auto changed = fs::last_write_time(folder, error);
  return !error && fs::file_time_type::clock::now() - changed > std::chrono::hours(24);
}

}  // namespace

std::string why_in_trash(const std::string& run) {
  return "it is in the trash here: `runner restore " + run + "` brings it back";
}

struct Trash::Impl {
  fs::path home;
  std::unique_ptr<sqlite::Database> database;

  int64_t row_of(const std::string& id) const {
    auto row = database->query("SELECT run FROM run WHERE id = ?", id);
    if (!row.step()) throw usage_error("there is no run {} in {}", id, database->path().string());
    return row.integer(0);
  }
  fs::path folder_of(int64_t run) const {
    return (home / database->text("SELECT folder FROM run WHERE run = ?", run)).lexically_normal();
  }
  /// Whether the folder is one of a run in the ledger's folder. No other is ever renamed or deleted, whatever a record says.
  bool is_own(const fs::path& folder) const {
    const auto below = relative_below(home / "runs", folder);
    return below && is_run_id(*below);
  }
  bool trashed(int64_t run) const {
    return database->query("SELECT 1 FROM run WHERE run = ? AND deleted IS NOT NULL", run).step();
  }
  void check_trashed(int64_t run, const std::string& id) const {
    if (!trashed(run)) throw usage_error("run {} is not in the trash", id);
  }
};

Trash::Trash(const std::string& home) : impl_(std::make_unique<Impl>()) {
  impl_->home = home;
  if (!fs::exists(impl_->home / "ledger.db"))
    throw usage_error("there is no ledger in {}; RUNNER_HOME=FOLDER names another one", home);
  { Ledger ledger(home, Ledger::Mode::read); }  // migrates the file, and marks lost runs
  impl_->database = open_to_change(impl_->home / "ledger.db");
  (void)schema_version(*impl_->database);  // a newer one is not changed
  impl_->database->execute("PRAGMA synchronous = FULL");
}

Trash::~Trash() = default;

std::string Trash::held_by(const std::string& run) const {
  return live_use_of(*impl_->database, impl_->home, impl_->row_of(run));
}

bool Trash::has(const std::string& run) const {
  return impl_->database->query("SELECT 1 FROM run WHERE id = ? AND deleted IS NOT NULL", run).step();
}

std::vector<std::string> Trash::children(const std::string& run) const {
  return impl_->database->texts(
      "SELECT DISTINCT id FROM edge JOIN run ON run.run = target WHERE source = ? AND deleted IS NULL ORDER BY id",
      impl_->row_of(run));
}

void Trash::remove(const std::vector<std::string>& runs) {
  auto& database = *impl_->database;
  sqlite::Transaction transaction(database);
  std::string held;
  for (const auto& id : runs)
    if (const auto why = held_by(id); !why.empty()) held += fmt::format("\n  {}: {}", id, why);
  if (!held.empty()) throw usage_error("nothing was removed, because this is in use:{}", held);
  const double now = wall_seconds();
  for (const auto& id : runs) {
    const int64_t run = impl_->row_of(id);
    if (impl_->trashed(run)) continue;
    database.run("UPDATE run SET deleted = ? WHERE run = ?", now, run);
    record_change(database, run, "deleted", {}, format_time(now));
  }
  transaction.commit();
}

void Trash::restore(const std::vector<std::string>& runs) {
  auto& database = *impl_->database;
  sqlite::Transaction transaction(database);
  for (const auto& id : runs) {
    const int64_t run = impl_->row_of(id);
    impl_->check_trashed(run, id);
    const fs::path folder = impl_->folder_of(run);
    std::error_code error;
    // A purge that was killed before it deleted the rows.
    if (impl_->is_own(folder) && !fs::exists(folder) && fs::exists(purged_folder(folder)))
      fs::rename(purged_folder(folder), folder, error);
    if (error) throw environment_error("cannot restore the folder {}: {}", folder.string(), error.message());
    auto before = database.query("SELECT deleted FROM run WHERE run = ?", run);
    RUNNER_CHECK(before.step());
    record_change(database, run, "deleted", format_time(before.real(0)), {});
    database.run("UPDATE run SET deleted = NULL WHERE run = ?", run);
  }
  transaction.commit();
}

int64_t Trash::purge(const std::string& id) {
  auto& database = *impl_->database;
  fs::path folder, hidden;
  {
    sqlite::Transaction transaction(database);
    const int64_t run = impl_->row_of(id);
    impl_->check_trashed(run, id);
    // A run in the trash can still be in use: a recipe may name its checkpoints.
    if (const auto why = held_by(id); !why.empty()) throw usage_error("run {} was not purged: {}", id, why);
    folder = impl_->folder_of(run);
    hidden = purged_folder(folder);
    std::error_code error;
    const bool renamed = fs::exists(folder) && impl_->is_own(folder);
    if (fs::exists(folder) && !renamed)
      log::warning("the folder of run {}, {}, stays: it is not in {}", id, folder.string(),
                   (impl_->home / "runs").string());
    if (renamed) fs::rename(folder, hidden, error);
    if (error) throw environment_error("cannot purge run {}: {}: {}", id, folder.string(), error.message());
    fault_point("purge renamed");
    try {
      database.run(
          "INSERT INTO purged (id, name, started, time, who) SELECT id, name, started, ?, ? FROM run WHERE run = ? "
          "ON CONFLICT (id) DO UPDATE SET time = excluded.time, who = excluded.who",
          wall_seconds(), this_user(), run);
      delete_run_rows(database, run);
      fault_point("purge rows");
      transaction.commit();
    } catch (...) {
      if (renamed) fs::rename(hidden, folder, error);
      throw;
    }
  }
  fault_point("purge committed");
  if (!impl_->is_own(folder)) return 0;
  const int64_t bytes = bytes_below(hidden);
  std::error_code error;
  fs::remove_all(hidden, error);
  if (error) log::warning("cannot remove {}: {}", hidden.string(), error.message());
  return bytes;
}

void Trash::remove_unreferenced_texts() {
  sqlite::Transaction transaction(*impl_->database);
  impl_->database->execute("DELETE FROM config WHERE " + unreferenced_texts(*impl_->database));
  transaction.commit();
}

Leftovers Trash::remove_leftovers(bool dry) {
  Leftovers found;
  std::error_code error;
  for (fs::directory_iterator entry(impl_->home / "runs", error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const HiddenFolder kind = kind_of_hidden(name);
    if (kind == HiddenFolder::none || (kind == HiddenFolder::import && !is_old(entry->path()))) continue;
    // With a row, the purge was killed before its commit: the run is still in the trash and can be restored.
    if (kind == HiddenFolder::purged &&
        impl_->database->query("SELECT 1 FROM run WHERE id = ?", id_in_hidden(name)).step())
      continue;
    auto& sum = kind == HiddenFolder::purged ? found.purged : found.imports;
    ++sum.count;
    sum.bytes += bytes_below(entry->path());
    std::error_code failed;
    if (!dry) fs::remove_all(entry->path(), failed);
    if (failed) log::warning("cannot remove {}: {}", entry->path().string(), failed.message());
  }
  return found;
}

std::vector<TrashedRun> Trash::runs() const {
  std::vector<TrashedRun> list;
  auto rows = impl_->database->query(
      "SELECT id, name, deleted, folder FROM run WHERE deleted IS NOT NULL ORDER BY deleted, started, run");
  while (rows.step())
    list.push_back({.id = rows.text(0),
                    .name = rows.text(1),
                    .deleted = rows.real(2),
                    .folder = (impl_->home / rows.text(3)).string()});
  return list;
}

std::string Trash::find(const std::string& text) const {
  const auto list = runs();
  if (list.empty()) throw usage_error("there is no run \"{}\" in the trash: the trash is empty", text);
  if (text == "last") return list.back().id;
  std::vector<std::string> matches, similar;
  const TrashedRun* of_name = nullptr;
  for (const auto& run : list) {
    if (run.id == text) return run.id;
    if (run.name == text) of_name = &run;
    if (shortens(text, run.id)) matches.push_back(run.id);
    similar.insert(similar.end(), {run.id, run.name, id_end(run.id)});
  }
  if (of_name) return of_name->id;
  if (matches.size() == 1) return matches[0];
  if (matches.size() > 1)
    throw usage_error("\"{}\" names {} runs in the trash: {}", text, matches.size(), join_or(matches));
  const auto near = nearest(text, similar);
  throw usage_error("there is no run \"{}\" in the trash{}; `runner ls deleted:yes` lists it", text,
                    near ? fmt::format(": did you mean \"{}\"?", *near) : "");
}

}  // namespace runner
