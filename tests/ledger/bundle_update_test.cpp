// Bundles of runs that a ledger has already: updates, conflicts, replacement, and the recipe that stays.
#include <catch2/catch_test_macros.hpp>

#include "bundle_support.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/orphans.hpp"
#include "runner/ledger/sweeps.hpp"
#include "runner/ledger/trash.hpp"

using namespace runner;

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
