// Bundles: what a ledger records of a run arrives whole in another one, once, and conflicts are named.
#include "runner/ledger/bundle.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "bundle_support.hpp"
#include "runner/base/files.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/bundle_files.hpp"
#include "runner/ledger/merge.hpp"
#include "runner/ledger/migrations.hpp"
#include "runner/ledger/orphans.hpp"
#include "runner/ledger/row_copy.hpp"
#include "runner/ledger/sweeps.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;

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
          "2: the bundle " + copy.string() + " is damaged: " + what);
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
    REQUIRE(sweeps.trials(sweep.id).size() == 2);  // or a finished sweep would have one of two
    CHECK(sweeps.trials(sweep.id)[0].run == a);
    CHECK((sweeps.trials(sweep.id)[1].run.empty() && sweeps.trials(sweep.id)[1].value == 0.25));
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
  CHECK(Sweeps(there.home(), Ledger::Mode::read).trials("sweep-1")[1].run == b);
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
  const std::string earlier = "ALTER TABLE bundled DROP COLUMN files;";  // as in bundles of earlier versions
  const auto spoil_new = [&](const std::string& sql) {
    const fs::path copy = here.path / "spoiled.bundle";
    fs::copy_file(file, copy, fs::copy_options::overwrite_existing);
    sqlite::Database(copy, sqlite::Access::existing).execute(sql);
    return error_of([&] { merge_bundle(there.home(), copy); });
  };
  const auto spoil = [&](const std::string& sql) { return spoil_new(earlier + sql); };
  const std::string name = (here.path / "spoiled.bundle").string();
  CHECK(spoil("UPDATE bundled_part SET content = CAST('b line' AS BLOB) WHERE file = 1 AND part = 0") ==
        "2: the bundle " + name + " is damaged: the content of rank-0.log does not have its digest");
  for (const char* sql : {"UPDATE bundled_file SET path = 'renamed.txt' WHERE file = 1",
                          "UPDATE bundled SET files = NULL", "UPDATE bundled_part SET hash = 'x' WHERE file = 1",
                          "DELETE FROM bundled_part WHERE file = 2; DELETE FROM bundled_file WHERE file = 2"})
    CHECK(spoil_new(sql) ==
          "2: the bundle " + name + " is damaged: the files of run " + id + " do not have their digest");
  CHECK(spoil("UPDATE bundled_file SET path = 'a' || char(0) || 'b' WHERE file = 1") ==
        "2: the bundle " + name + " is damaged: it has a file \"a\\x00b\"");
  for (const char* path : {"../../../evil", "/evil", "a/../../evil"})
    CHECK(spoil(fmt::format("UPDATE bundled_file SET path = '{}' WHERE file = 1", path)) ==
          fmt::format("2: the bundle {} is damaged: it has a file \"{}\"", name, path));
  for (const char* path :
       {"", ".", "logs/", "./a", ".importing", "logs/rank-0.log/b", "ledger-spool.db", "logs/ledger-spool.db-wal"})
    CHECK(spoil(fmt::format("UPDATE bundled_file SET path = '{}' WHERE path = 'recipe.toml'", path)) ==
          fmt::format("2: the bundle {} is damaged: it has a file \"{}\"", name, path));
  CHECK(spoil("UPDATE bundled_file SET path = 'recipe.toml/b' WHERE path = 'logs/rank-0.log'")
            .ends_with(" is damaged: it has a file \"recipe.toml\""));
  const std::string short_file = "2: the bundle " + name + " is damaged: rank-0.log has 0 bytes of 7";
  CHECK(spoil("DELETE FROM bundled_part WHERE file = 1") == short_file);
  CHECK(spoil("UPDATE bundled_part SET part = 1 WHERE file = 1") == short_file);
  CHECK(spoil("UPDATE bundled_file SET bytes = 9 WHERE file = 1").ends_with(" rank-0.log has 7 bytes of 9"));
  CHECK(spoil("UPDATE bundled SET id = '../x'; UPDATE run SET id = '../x'") ==
        "2: the bundle " + name + " is damaged: it has a run \"../x\"");
  CHECK(spoil("PRAGMA user_version = 99")
            .starts_with("4: the bundle " + name + " has schema 99, and this runner knows schemas up to"));
  CHECK(Ledger(there.home(), Ledger::Mode::read).runs().empty());
  CHECK_FALSE(fs::exists(fs::path(there.home()) / "runs" / id));
  CHECK_FALSE(fs::exists(there.path / "evil"));
  CHECK(spoil("").empty());
  CHECK(fs::exists(fs::path(there.home()) / "runs" / id / "logs/rank-0.log"));
}

TEST_CASE("a record of a stranger has no folder, no process and no permissions of its own") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  fs::permissions(fs::path(here.home()) / "runs" / id / "recipe.toml", fs::perms(0777));
  here.raw().execute(
      "INSERT INTO sweep (id, name, status, seed, started, heartbeat, space, recipe, folder) SELECT 'sweep-1', 's', "
      "'finished', 1, 1, 50, config, recipe, '/etc' FROM run;"
      "INSERT INTO trial (sweep, number, draw, status, parameters, run) SELECT 1, 1, 1, 'finished', '{}', run FROM "
      "run");
  const auto file = bundle_of(here, {id});
  {
    sqlite::Database bundle(file, sqlite::Access::existing);
    bundle.execute(
        "UPDATE run SET status = 'running', ended = NULL, folder = '/etc', deleted = 5; UPDATE attempt SET ended = "
        "NULL; UPDATE sweep SET status = 'running', folder = '/etc'");
    bundle.run("UPDATE bundled SET digest = ?", run_digest(bundle, "main", bundle.integer("SELECT run FROM run")));
  }
  CHECK(merge_bundle(there.home(), file).at(0).outcome == Outcome::added);
  auto raw = there.raw();
  CHECK(raw.text("SELECT status FROM run") == "lost");
  CHECK(raw.integer("SELECT count(*) FROM run WHERE ended IS NULL OR deleted IS NOT NULL") == 0);
  CHECK(raw.integer("SELECT count(*) FROM attempt WHERE ended IS NULL") == 0);
  CHECK(raw.text("SELECT folder FROM run") == "runs/" + id);
  CHECK(raw.text("SELECT status || ' ' || folder FROM sweep") == "interrupted sweeps/sweep-1");
  CHECK(fs::status(fs::path(there.home()) / "runs" / id / "recipe.toml").permissions() == fs::perms(0600));
  CHECK(merge_bundle(there.home(), file).at(0).outcome == Outcome::unchanged);
}

TEST_CASE("texts of a bundle's rows are JSON of the type that the ledger reads") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  const std::string deep(2000, '[');
  for (const auto& [column, text] :
       {std::pair("run.tags", std::string("{}")), std::pair("run.tags", std::string("[1]")),
        std::pair("run.host", std::string("{")), std::pair("run.annotations", std::string("[]")),
        std::pair("run.annotations", "{\"a\":" + deep), std::pair("run.git", std::string("{\"a\": \"\xff\"}"))}) {
    const auto file = bundle_of(here, {id});
    {
      sqlite::Database bundle(file, sqlite::Access::existing);
      bundle.run(fmt::format("UPDATE run SET {} = ?", std::string(column).substr(4)), text);
      bundle.run("UPDATE bundled SET digest = ?", run_digest(bundle, "main", bundle.integer("SELECT run FROM run")));
    }
    CHECK_THAT(error_of([&] { merge_bundle(there.home(), file); }),
               ContainsSubstring(fmt::format("is damaged: {} has a text that is no JSON ", column)));
    fs::remove(file);
  }
}

TEST_CASE("rows that the tables of a ledger do not take are a mistake of the bundle") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  const auto file = bundle_of(here, {id});
  {
    sqlite::Database bundle(file, sqlite::Access::existing);
    bundle.execute(
        "DROP TABLE artifact;"
        "CREATE TABLE artifact (artifact INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES run, time REAL, kind "
        "TEXT, path TEXT, fields TEXT, saved INTEGER);"
        "INSERT INTO artifact (run, path, fields) SELECT run, 'x', '{}' FROM run");
    bundle.run("UPDATE bundled SET digest = ?", run_digest(bundle, "main", bundle.integer("SELECT run FROM run")));
  }
  CHECK_THAT(error_of([&] { merge_bundle(there.home(), file); }),
             ContainsSubstring("2: the bundle " + file.string() + " is damaged: ") &&
                 ContainsSubstring("NOT NULL constraint failed: artifact."));
  CHECK(Ledger(there.home(), Ledger::Mode::read).runs().empty());
}

TEST_CASE("annotations of a record replace none of its fields, and a bundle has no views in place of tables") {
  LedgerFolder here, there;
  const auto id = add_run(here, "a", 5);
  const auto file = bundle_of(here, {id});
  {
    sqlite::Database bundle(file, sqlite::Access::existing);
    bundle.run("UPDATE run SET annotations = ?",
               R"({"id": "x", "run_dir": "/etc", "config": 1, "measured": {"a": 1}})");
    bundle.run("UPDATE bundled SET digest = ?", run_digest(bundle, "main", bundle.integer("SELECT run FROM run")));
  }
  merge_bundle(there.home(), file);
  const auto shown = Ledger(there.home(), Ledger::Mode::read).show(id);
  CHECK(shown["id"] == id);
  CHECK(shown["run_dir"] == (fs::path(there.home()) / "runs" / id).string());
  CHECK(shown["config"].is_object());
  CHECK(shown["measured"]["a"] == 1);
  for (const std::string name : {"bundled", "Sweep"}) {
    const auto other = bundle_of(here, {id}, name);
    sqlite::Database(other, sqlite::Access::existing)
        .execute(fmt::format("ALTER TABLE {0} RENAME TO hidden; CREATE VIEW {0} AS SELECT * FROM hidden", name));
    CHECK_THAT(error_of([&] { merge_bundle(there.home(), other); }),
               ContainsSubstring("is damaged: " + name + " is no table"));
  }
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
