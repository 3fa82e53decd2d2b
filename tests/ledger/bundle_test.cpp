// Bundles: what a ledger records of a run arrives whole in another one, once, and conflicts are named.
#include "runner/ledger/bundle.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "runner/base/files.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/interrupted_import.hpp"
#include "runner/ledger/merge.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/orphans.hpp"
#include "runner/ledger/row_copy.hpp"
#include "runner/ledger/sweeps.hpp"
#include "runner/ledger/trash.hpp"
#include "support.hpp"

using namespace runner;
using Outcome = MergedRun::Outcome;

namespace {

std::string add_run(const LedgerFolder& folder, const std::string& name, int64_t points,
                    const std::string& parent = "") {
  Ledger ledger(folder.home(), Ledger::Mode::write);
  auto run = new_run(folder, name);
  run.parent = parent;
  run.parent_kind = "evaluated";
  const auto id = ledger.begin_run(run);
  ledger.begin_attempt(id, "start");
  for (int64_t step = 1; step <= points; ++step)
    ledger.metrics(id, {{"loss", step, 1.0 / static_cast<double>(step)}, {"nan", step, std::nan("")}});
  ledger.metrics(id, {{"val_loss", points, 0.25, /*at_end=*/true}});
  ledger.event(id, "note", {{"step", 1}, {"text", "one"}});
  ledger.event(id, "note", {{"step", 2}, {"text", "two"}});
  const fs::path run_dir = ledger.run_dir(id);
  ledger.artifact(id, "checkpoint", (run_dir / "checkpoints/step-000002").string(), {{"step", 2}});
  ledger.annotate(id, "predicted", {{"memory", 5}});
  write_file_atomic(run_dir / "recipe.toml", "[run]\n");
  for (const char* sub : {"logs", "checkpoints/step-000002", "checkpoints/.step-000004.1.tmp"})
    fs::create_directories(run_dir / sub);
  write_file_atomic(run_dir / "logs/rank-0.log", "a line\n");
  write_file_atomic(run_dir / "checkpoints/step-000002/manifest.json", std::string(20 << 20, '\0') + "end");
  write_file_atomic(run_dir / "checkpoints/.step-000004.1.tmp/rank", "half");
  ledger.annotate(id, "scripts", {{"a.lua", ledger.keep("a script")}});
  ledger.finish_run(id, "finished", 0, "");
  return id;
}

/// Everything that `show` and the points say, without what depends on the place.
nlohmann::json record_of(const LedgerFolder& folder, const std::string& id) {
  Ledger ledger(folder.home(), Ledger::Mode::read);
  auto record = ledger.show(id);
  record.erase("run_dir");
  for (auto& list : {"checkpoints", "artifacts"})
    for (auto& one : record[list]) one.erase("exists");
  record.erase("run_dir_exists");
  for (const auto& name : ledger.metric_names(id))
    for (const auto& [step, value] : ledger.points(id, name))
      record["points"][name].push_back({step, json_number(value)});
  return record;
}

/// Continues the run: an attempt with points and a checkpoint of its last step.
void train_on(const LedgerFolder& folder, const std::string& id, int64_t from, int64_t to) {
  Ledger ledger(folder.home(), Ledger::Mode::write);
  ledger.reopen_run(id, new_run(folder, "a"));
  ledger.begin_attempt(id, "resume", from);
  for (int64_t step = from + 1; step <= to; ++step) ledger.metrics(id, {{"loss", step, 0.1}});
  ledger.finish_run(id, "finished", 0, "");
  const fs::path checkpoint = fs::path(ledger.run_dir(id)) / fmt::format("checkpoints/step-{:06}", to);
  fs::create_directories(checkpoint);
  write_file_atomic(checkpoint / "manifest.json", "{}");
}

/// The checkpoints in the folder of a run.
std::vector<std::string> checkpoints_of(const LedgerFolder& folder, const std::string& id) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(fs::path(folder.home()) / "runs" / id / "checkpoints", error), end;
       !error && entry != end; entry.increment(error))
    if (!entry->path().filename().string().starts_with('.')) names.push_back(entry->path().filename());
  std::ranges::sort(names);
  return names;
}

fs::path bundle_of(const LedgerFolder& folder, const std::vector<std::string>& ids,
                   const std::string& name = "a.bundle", BundledFiles files = BundledFiles::settings) {
  fs::remove(folder.path / name);
  write_bundle(folder.home(), ids, folder.path / name, files);
  return folder.path / name;
}

}  // namespace

TEST_CASE("expectation 35: a bundle keeps ids and records, and merging it twice changes nothing") {
  LedgerFolder here, there;
  add_run(there, "other", 3);  // row numbers and metric names differ there
  const auto a = add_run(here, "a", 500), b = add_run(here, "b", 3, a);
  const auto file = bundle_of(here, {a, b}, "a.bundle", BundledFiles::all);
  auto merged = merge_bundle(there.home(), file);
  REQUIRE(merged.size() == 2);
  CHECK((merged[0].outcome == Outcome::added && merged[1].outcome == Outcome::added));
  for (const auto& id : {a, b}) CHECK(record_of(there, id) == record_of(here, id));
  CHECK(record_of(there, a).at("points").at("loss").size() == 500);
  CHECK(Ledger(there.home(), Ledger::Mode::read).kept(record_of(here, a).at("scripts").at("a.lua")) == "a script");
  CHECK(record_of(there, b).at("parents").at(0).at("id") == a);
  const fs::path folder = fs::path(there.home()) / "runs" / a;
  CHECK(read_file(folder / "checkpoints/step-000002/manifest.json") == std::string(20 << 20, '\0') + "end");
  CHECK(read_file(folder / "logs/rank-0.log") == "a line\n");
  CHECK_FALSE(fs::exists(folder / "checkpoints/.step-000004.1.tmp"));
  CHECK_FALSE(fs::exists(folder / ".importing"));
  CHECK(there.raw().text("PRAGMA integrity_check") == "ok");
  CHECK(there.raw().integer("SELECT count(*) FROM pragma_foreign_key_check") == 0);

  const auto before = there.raw().integer("SELECT (SELECT count(*) FROM metric) + (SELECT count(*) FROM event)");
  for (int again = 0; again < 2; ++again)
    for (const auto& run : merge_bundle(there.home(), file)) CHECK(run.outcome == Outcome::unchanged);
  CHECK(there.raw().integer("SELECT (SELECT count(*) FROM metric) + (SELECT count(*) FROM event)") == before);
  // Also on the machine that wrote it.
  for (const auto& run : merge_bundle(here.home(), file)) CHECK(run.outcome == Outcome::unchanged);
}

TEST_CASE("an import that was killed before it had added the files is completed by the next one") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 3);
  const auto file = bundle_of(here, {id}, "a.bundle", BundledFiles::all);
  merge_bundle(there.home(), file);
  const fs::path folder = fs::path(there.home()) / "runs" / id,
                 manifest = folder / "checkpoints/step-000002/manifest.json";
  // As after a kill between the commit of the rows and the first file.
  fs::remove_all(folder / "checkpoints");
  auto merged = merge_bundle(there.home(), file).at(0);
  CHECK(merged.outcome == Outcome::unchanged);
  CHECK(merged.files == 1);
  CHECK(fs::exists(manifest));
  // While files are replaced: the state that was announced is completed, another one is not.
  const auto digest = sqlite::Database(file, sqlite::Access::existing).text("SELECT digest FROM bundled");
  for (const bool announced : {false, true}) {
    write_file_atomic(manifest, "old");
    write_file_atomic(folder / ".importing", announced ? digest : "another state");
    CHECK(merge_bundle(there.home(), file).at(0).outcome == Outcome::unchanged);
    CHECK((read_file(manifest) == "old") == !announced);
    CHECK_FALSE(fs::exists(folder / ".importing"));
  }
  CHECK(std::distance(fs::directory_iterator(folder.parent_path()), {}) == 1);
}

TEST_CASE("a bundle with files adds them to a run whose record is here already") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 3);
  merge_bundle(there.home(), bundle_of(here, {id}));
  const auto with_files = bundle_of(here, {id}, "b.bundle", BundledFiles::all);
  const fs::path folder = fs::path(there.home()) / "runs" / id;
  CHECK_FALSE(fs::exists(folder / "checkpoints"));
  there.raw().execute("UPDATE run SET notes = 'edited here'");  // the training is the same
  auto merged = merge_bundle(there.home(), with_files).at(0);
  CHECK(merged.outcome == Outcome::unchanged);
  CHECK(merged.files == 2);
  CHECK(read_file(folder / "checkpoints/step-000002/manifest.json").size() > 20'000'000);
  CHECK(fs::exists(folder / "logs/rank-0.log"));
  CHECK(merge_bundle(there.home(), with_files).at(0).files == 0);
  // A state that goes on from the bundle's has other checkpoints.
  fs::remove_all(folder / "checkpoints");
  there.raw().execute("UPDATE run SET steps = 9");
  CHECK(merge_bundle(there.home(), with_files).at(0).files == 0);
  CHECK_FALSE(fs::exists(folder / "checkpoints"));
}

TEST_CASE("a bundle whose rows or texts were changed is refused") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  const auto file = bundle_of(here, {id});
  for (const auto& [sql, what] :
       {std::pair("UPDATE metric SET value = 999 WHERE step = 3",
                  "the rows of run " + id + " do not have their digest"),
        std::pair("UPDATE run SET notes = 'forged'", "the rows of run " + id + " do not have their digest"),
        std::pair("UPDATE config SET content = content || ' '", std::string("a text does not have its digest"))}) {
    const fs::path copy = here.path / "changed.bundle";
    fs::copy_file(file, copy, fs::copy_options::overwrite_existing);
    sqlite::Database(copy, sqlite::Access::existing).execute(sql);
    CHECK(error_of([&] { merge_bundle(there.home(), copy); }) ==
          "4: the bundle " + copy.string() + " is damaged: " + what);
  }
  CHECK(Ledger(there.home(), Ledger::Mode::read).runs().empty());
  CHECK(merge_bundle(there.home(), file).at(0).outcome == Outcome::added);
}

TEST_CASE("two imports of one bundle at the same time add its runs and files once") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 50);
  const auto file = bundle_of(here, {id}, "a.bundle", BundledFiles::all);
  { Ledger ledger(there.home(), Ledger::Mode::write); }
  std::vector<pid_t> importers;
  for (int i = 0; i < 3; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      bool good = false;
      try {
        const auto outcome = merge_bundle(there.home(), file).at(0).outcome;
        good = outcome == Outcome::added || outcome == Outcome::unchanged;
      } catch (const std::exception&) {
      }
      ::_exit(good ? 0 : 1);
    }
    importers.push_back(pid);
  }
  for (const pid_t pid : importers) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    CHECK(status == 0);
  }
  CHECK(record_of(there, id) == record_of(here, id));
  const fs::path runs = fs::path(there.home()) / "runs";
  CHECK(read_file(runs / id / "checkpoints/step-000002/manifest.json") == std::string(20 << 20, '\0') + "end");
  CHECK(std::distance(fs::directory_iterator(runs), {}) == 1);
}

TEST_CASE("import --replace takes the bundle's checkpoints, and keeps the edits made here in the audit trail") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  const auto file = bundle_of(here, {id}, "a.bundle", BundledFiles::checkpoints);
  merge_bundle(there.home(), file);
  const fs::path folder = fs::path(there.home()) / "runs" / id,
                 manifest = folder / "checkpoints/step-000002/manifest.json";
  write_file_atomic(manifest, "of another training");
  write_file_atomic(folder / "checkpoints/step-000002/more", "x");
  {
    Ledger ledger(there.home(), Ledger::Mode::write);
    ledger.edit({id}, {.notes = "edited here"});
  }
  here.raw().execute("UPDATE metric SET value = 7 WHERE step = 2");
  const auto other = bundle_of(here, {id}, "b.bundle", BundledFiles::checkpoints);
  auto merged = merge_bundle(there.home(), other).at(0);
  CHECK(merged.why == "it differs here in notes, edits (1 here, 0 there), values of points");
  CHECK(merge_bundle(there.home(), other, /*replace=*/true).at(0).outcome == Outcome::updated);
  CHECK(read_file(manifest).size() > 20'000'000);
  CHECK_FALSE(fs::exists(folder / "checkpoints/step-000002/more"));
  auto changes = there.raw().query("SELECT what, after FROM change ORDER BY change");
  REQUIRE(changes.step());
  CHECK((changes.text(0) == "notes" && changes.text(1) == "edited here"));
  REQUIRE(changes.step());
  CHECK((changes.text(0) == "replaced" && changes.text(1) == other.string()));
  CHECK_FALSE(changes.step());
  CHECK(merge_bundle(there.home(), other).at(0).outcome == Outcome::unchanged);
}

TEST_CASE("a run of a sweep brings the sweep and its trial, and the recipe of the sweep only without secrets") {
  LedgerFolder here, there;
  const auto a = add_run(here, "a", 5), b = add_run(here, "b", 5);
  {
    auto database = here.raw();
    const std::string space = xxh3_hex("{\"objective\":{}}"), recipe = xxh3_hex("SWEEP-RECIPE");
    database.run("INSERT INTO config VALUES (?, '{\"objective\":{}}'), (?, 'SWEEP-RECIPE')", space, recipe);
    database.run(
        "INSERT INTO sweep (id, name, status, seed, started, heartbeat, space, recipe, folder) VALUES ('sweep-1', 's', "
        "'running', 1, 1, 50, ?, ?, 'sweeps/sweep-1')",
        space, recipe);
    database.execute(
        "INSERT INTO trial (sweep, number, draw, status, parameters, objective, ended, run) SELECT 1, run, run, "
        "'finished', '{\"lr\":0.5}', 0.25, 40, run FROM run;"
        "INSERT INTO sweep_history (sweep, sequence, trial, time, entry) VALUES (1, 1, 1, 1, '{}'), (1, 2, 2, 2, "
        "'{}'), "
        "(1, 3, 1, 3, '{}')");
  }
  merge_bundle(there.home(), bundle_of(here, {a}));
  {
    const Sweeps sweeps(there.home(), Ledger::Mode::read);
    REQUIRE(sweeps.sweeps().size() == 1);
    const auto sweep = sweeps.sweeps()[0];
    CHECK((sweep.id == "sweep-1" && sweep.status == "interrupted" && sweep.ended == 50));
    REQUIRE(sweeps.trials(sweep.id).size() == 1);
    CHECK(sweeps.trials(sweep.id)[0].run == a);
    CHECK(sweeps.trials(sweep.id)[0].value == 0.25);
    CHECK(sweeps.history(sweep.id).size() == 2);
  }
  CHECK(record_of(there, a).at("sweep").at("id") == "sweep-1");
  CHECK(error_of([&] {
          Sweeps(there.home(), Ledger::Mode::write).claim("sweep-1");
        }).find("came with a bundle of its runs") != std::string::npos);
  // The other trial joins it, and the sweep has ended meanwhile.
  here.raw().execute("UPDATE sweep SET status = 'finished', ended = 60");
  merge_bundle(there.home(), bundle_of(here, {b}, "b.bundle"));
  CHECK(Sweeps(there.home(), Ledger::Mode::read).trials("sweep-1").size() == 2);
  CHECK(Sweeps(there.home(), Ledger::Mode::read).history("sweep-1").size() == 3);
  CHECK(Sweeps(there.home(), Ledger::Mode::read).sweeps()[0].status == "finished");
  CHECK(there.raw().integer("SELECT count(*) FROM pragma_foreign_key_check") == 0);
  here.raw().execute("UPDATE run SET annotations = json_set(annotations, '$.redacted', json('[\"k\"]'))");
  CHECK(read_file(bundle_of(here, {a}, "c.bundle")).find("SWEEP-RECIPE") == std::string::npos);
  LedgerFolder third;
  merge_bundle(third.home(), here.path / "c.bundle");
  CHECK(Sweeps(third.home(), Ledger::Mode::read).sweeps().size() == 1);
}

TEST_CASE("a bundle follows links of checkpoints, names other links, and leaves a record beside the run out") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  const fs::path folder = fs::path(here.home()) / "runs" / id, moved = here.path / "moved";
  fs::rename(folder / "checkpoints", moved);
  fs::create_directory_symlink(moved, folder / "checkpoints");
  fs::rename(moved / "step-000002", here.path / "one");
  fs::create_directory_symlink(here.path / "one", moved / "step-000002");
  fs::create_symlink(here.file(), folder / "link.db");
  for (const char* name : {"ledger-spool.db", "ledger-spool.db-wal", "ledger-spool.db-shm"})
    write_file_atomic(folder / name, "x");
  const auto summary = write_bundle(here.home(), {id}, here.path / "l.bundle", BundledFiles::checkpoints);
  CHECK(summary.links_left == std::vector<std::string>{(folder / "link.db").string()});
  CHECK(summary.files == 2);
  merge_bundle(there.home(), here.path / "l.bundle");
  CHECK(fs::exists(fs::path(there.home()) / "runs" / id / "checkpoints/step-000002/manifest.json"));
}

TEST_CASE("a run that went on elsewhere comes back, and what is older does not replace what is newer") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  const auto first = bundle_of(here, {id}, "first.bundle", BundledFiles::checkpoints);
  merge_bundle(there.home(), first);
  {
    Ledger ledger(there.home(), Ledger::Mode::write);
    ledger.reopen_run(id, new_run(there, "a"));
    ledger.begin_attempt(id, "resume", 5);
    ledger.metrics(id, {{"loss", 6, 0.1}});
    ledger.finish_run(id, "finished", 0, "");
  }
  fs::create_directories(fs::path(there.home()) / "runs" / id / "checkpoints/step-000006");
  write_file_atomic(fs::path(there.home()) / "runs" / id / "checkpoints/step-000006/manifest.json", "{}");
  // The older bundle changes nothing there.
  CHECK(merge_bundle(there.home(), first).at(0).outcome == Outcome::unchanged);
  const auto second = bundle_of(there, {id}, "second.bundle", BundledFiles::checkpoints);
  here.raw().execute(
      "INSERT INTO config VALUES ('s', '{}'); INSERT INTO sweep (id, name, status, seed, started, space, recipe, "
      "folder) "
      "VALUES ('sweep-1', 's', 'finished', 1, 1, 's', 's', 'x'); INSERT INTO trial (sweep, number, draw, status, "
      "parameters, run) SELECT 1, 1, 1, 'finished', '{}', run FROM run");
  CHECK(merge_bundle(here.home(), second).at(0).outcome == Outcome::updated);
  CHECK(record_of(here, id).at("points").at("loss").size() == 6);
  CHECK(record_of(here, id).at("attempts").size() == 2);
  CHECK(record_of(here, id).at("sweep").at("id") == "sweep-1");  // only this ledger knows of it
  CHECK(fs::exists(fs::path(here.home()) / "runs" / id / "checkpoints/step-000006/manifest.json"));
  CHECK(merge_bundle(here.home(), first).at(0).outcome == Outcome::unchanged);
}

TEST_CASE("a conflict is named, and changes nothing unless it is replaced") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  merge_bundle(there.home(), bundle_of(here, {id}));
  there.raw().execute("UPDATE run SET notes = 'mine'");
  here.raw().execute("UPDATE run SET notes = 'yours'; DELETE FROM metric WHERE step = 5");
  const auto file = bundle_of(here, {id});
  const auto merged = merge_bundle(there.home(), file).at(0);
  CHECK(merged.outcome == Outcome::conflict);
  CHECK(merged.why == "it differs here in notes, points (11 here, 8 there)");
  CHECK(there.raw().text("SELECT notes FROM run") == "mine");
  CHECK(merge_bundle(there.home(), file, /*replace=*/true).at(0).outcome == Outcome::updated);
  CHECK(there.raw().text("SELECT notes FROM run") == "yours");
  // In the trash, it stays there.
  Trash(there.home()).remove({id});
  here.raw().execute("UPDATE run SET notes = 'later'");
  CHECK(merge_bundle(there.home(), bundle_of(here, {id}), true).at(0).why ==
        "it is in the trash here: `runner restore " + id + "` brings it back");
}

TEST_CASE("a run that goes on is bundled as it is now, as lost") {
  LedgerFolder here, there;
  std::string id;
  Ledger ledger(here.home(), Ledger::Mode::write);
  id = ledger.begin_run(new_run(here));
  ledger.begin_attempt(id, "start");
  ledger.metrics(id, {{"loss", 1, 1.0}});
  ledger.flush();
  const auto file = bundle_of(here, {id});
  merge_bundle(there.home(), file);
  CHECK(Ledger(there.home(), Ledger::Mode::read).runs().at(0).status == "lost");
  CHECK(Ledger(here.home(), Ledger::Mode::read).runs().at(0).status == "running");
  CHECK(merge_bundle(here.home(), file, true).at(0).why.starts_with("it is running, as process "));
}

TEST_CASE("files that are no bundles, damaged or newer ones are refused, and hostile paths too") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  const auto file = bundle_of(here, {id}, "a.bundle", BundledFiles::logs);
  CHECK(error_of([&] { merge_bundle(there.home(), here.file()); }) ==
        "2: " + here.file().string() + " is not a bundle of runner (runner export --bundle RUN -o FILE writes one)");
  const auto spoil = [&](const std::string& sql) {
    const fs::path copy = here.path / "spoiled.bundle";
    fs::copy_file(file, copy, fs::copy_options::overwrite_existing);
    sqlite::Database(copy, sqlite::Access::existing).execute(sql);
    return error_of([&] { merge_bundle(there.home(), copy); });
  };
  const std::string name = (here.path / "spoiled.bundle").string();
  CHECK(spoil("UPDATE bundled_part SET content = CAST('b line' AS BLOB) WHERE file = 1 AND part = 0") ==
        "4: the bundle " + name + " is damaged: the content of rank-0.log does not have its digest");
  for (const char* path : {"../../../evil", "/evil", "a/../../evil"})
    CHECK(spoil(fmt::format("UPDATE bundled_file SET path = '{}' WHERE file = 1", path)) ==
          fmt::format("4: the bundle {} is damaged: it has a file \"{}\"", name, path));
  for (const char* path : {"", ".", "logs/", "./a", ".importing", "logs/rank-0.log/b"})
    CHECK(spoil(fmt::format("UPDATE bundled_file SET path = '{}' WHERE path = 'recipe.toml'", path)) ==
          fmt::format("4: the bundle {} is damaged: it has a file \"{}\"", name, path));
  CHECK(spoil("UPDATE bundled_file SET path = 'recipe.toml/b' WHERE path = 'logs/rank-0.log'")
            .ends_with(" is damaged: it has a file \"recipe.toml\""));
  const std::string short_file = "4: the bundle " + name + " is damaged: rank-0.log has 0 bytes of 7";
  CHECK(spoil("DELETE FROM bundled_part WHERE file = 1") == short_file);
  CHECK(spoil("UPDATE bundled_part SET part = 1 WHERE file = 1") == short_file);
  CHECK(spoil("UPDATE bundled_file SET bytes = 9 WHERE file = 1").ends_with(" rank-0.log has 7 bytes of 9"));
  CHECK(spoil("UPDATE bundled SET id = '../x'; UPDATE run SET id = '../x'") ==
        "4: the bundle " + name + " is damaged: it has a run \"../x\"");
  CHECK(spoil("PRAGMA user_version = 99")
            .starts_with("4: the bundle " + name + " has schema 99, and this runner knows schemas up to"));
  CHECK(Ledger(there.home(), Ledger::Mode::read).runs().empty());
  CHECK_FALSE(fs::exists(fs::path(there.home()) / "runs" / id));
  CHECK_FALSE(fs::exists(there.path / "evil"));
}

TEST_CASE("a course of training that an import replaces leaves no file in the run's folder") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  merge_bundle(there.home(), bundle_of(here, {id}, "first.bundle", BundledFiles::checkpoints));
  train_on(there, id, 5, 9);
  train_on(here, id, 5, 7);
  const fs::path folder = fs::path(there.home()) / "runs" / id, aside = folder.string() + ".replaced";
  write_file_atomic(folder / "recipe.toml", "# of the course that is given up\n");
  const auto second = bundle_of(here, {id}, "second.bundle", BundledFiles::checkpoints);
  REQUIRE(merge_bundle(there.home(), second).at(0).outcome == Outcome::conflict);
  CHECK(merge_bundle(there.home(), second).at(0).differs);
  const std::vector<std::string> wanted{"step-000002", "step-000007"};
  CHECK(merge_bundle(there.home(), second, /*replace=*/true).at(0).outcome == Outcome::updated);
  CHECK(checkpoints_of(there, id) == wanted);
  CHECK(read_file(folder / "recipe.toml") == "[run]\n");
  CHECK(fs::exists(aside / "checkpoints/step-000009/manifest.json"));
  CHECK_FALSE(fs::exists(aside / ".importing"));
  CHECK_NOTHROW(refuse_interrupted_import(there.home(), id, folder));
  CHECK(merge_bundle(there.home(), second).at(0).files == 0);
  CHECK(orphaned_folders(there.home(), /*hide=*/false) == std::vector<fs::path>{aside});
}

TEST_CASE("a run that went on where it came from is updated if nothing was changed here") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  const auto oldest = bundle_of(here, {id}, "oldest.bundle");
  train_on(here, id, 5, 7);
  const auto first = bundle_of(here, {id}, "first.bundle");
  merge_bundle(there.home(), first);
  SECTION("it was trained further") { train_on(here, id, 7, 9); }
  SECTION("it was renamed") { Ledger(here.home(), Ledger::Mode::write).edit({id}, {.name = "renamed"}); }
  const auto second = bundle_of(here, {id}, "second.bundle");
  CHECK(merge_bundle(there.home(), second).at(0).outcome == Outcome::updated);
  CHECK(record_of(there, id) == record_of(here, id));
  CHECK(there.raw().integer("SELECT count(*) FROM change WHERE what = 'replaced'") == 0);
  CHECK(merge_bundle(there.home(), first).at(0).outcome == Outcome::unchanged);
  // An older state that was never imported is no update.
  CHECK(merge_bundle(there.home(), oldest).at(0).outcome == Outcome::conflict);
  CHECK(record_of(there, id) == record_of(here, id));
}

TEST_CASE("a run that was archived here is updated, and stays archived") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  merge_bundle(there.home(), bundle_of(here, {id}, "first.bundle"));
  train_on(here, id, 5, 7);
  const auto second = bundle_of(here, {id}, "second.bundle");
  Ledger(there.home(), Ledger::Mode::write).edit({id}, {.archived = true});
  CHECK(merge_bundle(there.home(), second).at(0).outcome == Outcome::updated);
  const auto row = Ledger(there.home(), Ledger::Mode::read).runs(parse_filter("archived:yes")).at(0);
  CHECK(row.steps == 7);
}

TEST_CASE("a bundle leaves out checkpoints that are newer than the rows") {
  LedgerFolder here;
  const auto id = add_run(here, "a", 5);
  const fs::path folder = fs::path(here.home()) / "runs" / id;
  for (const char* name : {"step-000005", "step-000006"}) {
    fs::create_directories(folder / "checkpoints" / name);
    write_file_atomic(folder / "checkpoints" / name / "manifest.json", "{}");
  }
  const auto summary = write_bundle(here.home(), {id}, here.path / "n.bundle", BundledFiles::checkpoints);
  CHECK(summary.newer_left == std::vector<std::string>{(folder / "checkpoints/step-000006").string()});
  LedgerFolder there;
  merge_bundle(there.home(), here.path / "n.bundle");
  CHECK(checkpoints_of(there, id) == std::vector<std::string>{"step-000002", "step-000005"});
}

TEST_CASE("a recipe with secrets is left out, and the one of an earlier state does not stay") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  const fs::path folder = fs::path(there.home()) / "runs" / id;
  // Comments are no values.
  const std::string commented = new_run(here, "a").resolved + "# *** important ***\n";
  here.raw().run("INSERT INTO config VALUES (?, ?)", xxh3_hex(commented), commented);
  here.raw().run("UPDATE run SET resolved = ?", xxh3_hex(commented));
  const auto summary = write_bundle(here.home(), {id}, here.path / "c.bundle", BundledFiles::settings);
  CHECK(summary.withheld.empty());
  merge_bundle(there.home(), bundle_of(here, {id}, "first.bundle"));
  CHECK(read_file(folder / "recipe.toml") == "[run]\n");
  train_on(here, id, 5, 7);
  here.raw().execute("UPDATE run SET annotations = json_set(annotations, '$.redacted', json('[\"k\"]'))");
  const std::string hidden =
      "[logging]\nnotify = { url = \"a\", token = \"***\" }\nkey = \"***\"\n[optimizer]\nlr = 0.5\nkey = \"***\"\n";
  here.raw().run("INSERT INTO config VALUES (?, ?)", xxh3_hex(hidden), hidden);
  here.raw().run("UPDATE run SET resolved = ?", xxh3_hex(hidden));
  write_file_atomic(fs::path(here.home()) / "runs" / id / "resolved.toml", "secret");
  write_file_atomic(
      folder / "recipe.toml",
      "[logging]\nnotify = { url = \"a\", token = \"mine\" }\nkey = 5\n[optimizer]\nlr = 0.1\nkey = \"k\"\n");
  CHECK(merge_bundle(there.home(), bundle_of(here, {id}, "second.bundle")).at(0).outcome == Outcome::updated);
  CHECK(read_file(folder / "resolved.toml") == hidden);
  // Values that are known here are put in.
  CHECK(read_file(folder / "recipe.toml") ==
        "[logging]\nnotify = { url = \"a\", token = \"mine\" }\nkey = \"***\"\n[optimizer]\nlr = 0.5\nkey = \"k\"\n");
  CHECK(fs::status(folder / "recipe.toml").permissions() == fs::perms(0600));
  // A row of an earlier version does not name the keys.
  here.raw().execute(
      "UPDATE run SET annotations = json_remove(annotations, '$.redacted'); UPDATE config SET content = "
      "json_set(content, "
      "'$.run.token', '***') WHERE hash IN (SELECT config FROM run)");
  CHECK(write_bundle(here.home(), {id}, here.path / "e.bundle", BundledFiles::settings).withheld.size() == 1);
}
