// The trash: what is in use stays, a removed run is hidden and whole, a purged one leaves nothing behind.
#include "runner/ledger/trash.hpp"
#include "runner/ledger/hidden_folders.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runner/base/files.hpp"
#include "runner/ledger/filter.hpp"
#include "runner/ledger/orphans.hpp"
#include "support.hpp"

using namespace runner;

namespace {

/// A ledger with finished runs, and one file in the folder of each.
struct Kept {
  LedgerFolder folder;
  std::string add(const std::string& name, const std::string& status = "finished",
                  const std::function<void(NewRun&)>& change = {}) {
    NewRun whole = new_run(folder, name);
    whole.parent_kind = "evaluated";
    if (change) change(whole);
    Ledger ledger(folder.home(), Ledger::Mode::write);
    const auto id = ledger.begin_run(whole);
    ledger.begin_attempt(id, "start");
    ledger.metrics(id, {{"loss", 1, 2.5}, {"loss", 2, 2.0}});
    ledger.event(id, "note", {{"step", 1}});
    ledger.artifact(id, "checkpoint", ledger.run_dir(id) + "/checkpoints/step-000001", {{"step", 1}});
    write_file_atomic(fs::path(ledger.run_dir(id)) / "file", std::string(1000, 'x'));
    if (status != "running") ledger.finish_run(id, status, 0, "");
    return id;
  }
  fs::path folder_of(const std::string& id) { return fs::path(folder.home()) / "runs" / id; }
  int64_t rows(const std::string& table) { return folder.raw().integer("SELECT count(*) FROM " + table); }
};

}  // namespace

TEST_CASE("a removed run is hidden and whole, and comes back with restore") {
  Kept kept;
  const auto a = kept.add("a"), b = kept.add("b");
  Trash trash(kept.folder.home());
  trash.remove({a});
  {
    Ledger ledger(kept.folder.home(), Ledger::Mode::read);
    REQUIRE(ledger.runs(parse_filter("")).size() == 1);
    CHECK(ledger.runs(parse_filter(""))[0].id == b);
    CHECK(ledger.runs(parse_filter("deleted:yes")).at(0).id == a);
    CHECK(ledger.find_run("last") == b);
    for (const std::string& text : {a, std::string("a"), a.substr(a.rfind('-') + 1)})
      CHECK(error_of([&] { (void)ledger.find_run(text); }) ==
            "2: run " + a + " is in the trash: `runner restore " + a + "` brings it back");
  }
  CHECK(error_of([&] { Ledger(kept.folder.home(), Ledger::Mode::write).reopen_run(a, new_run(kept.folder)); }) ==
        "2: run " + a + " is in the trash: `runner restore " + a + "` brings it back");
  CHECK(fs::exists(kept.folder_of(a) / "file"));
  REQUIRE(trash.runs().size() == 1);
  CHECK(trash.runs()[0].id == a);
  CHECK(trash.find("a") == a);
  CHECK(trash.find("last") == a);
  CHECK(error_of([&] { (void)trash.find(b); }).starts_with("2: there is no run \"" + b + "\" in the trash"));
  trash.restore({a});
  CHECK(Ledger(kept.folder.home(), Ledger::Mode::read).points(a, "loss").size() == 2);
  CHECK(trash.runs().empty());
  CHECK(error_of([&] { trash.restore({a}); }) == "2: run " + a + " is not in the trash");
  // Both edits are in the audit trail.
  auto changes = kept.folder.raw();
  CHECK(changes.integer("SELECT count(*) FROM change WHERE what = 'deleted' AND who LIKE '%@%'") == 2);
  CHECK(changes.integer("SELECT count(*) FROM change WHERE before IS NULL") == 1);
}

TEST_CASE("expectation 33: what a running run uses is not removed, and nothing else of the same command either") {
  Kept kept;
  const auto parent = kept.add("parent"), source = kept.add("source"), weights = kept.add("weights"),
             other = kept.add("other");
  const auto reader = kept.add("reader", "running", [&](NewRun& run) { run.parent = parent; });
  const auto continued = kept.add("continued", "running", [&](NewRun& run) {
    run.annotations = {{"start", (kept.folder_of(source) / "checkpoints/step-000001").string()}};
  });
  const auto tuned = kept.add("tuned", "running", [&](NewRun& run) {
    run.config = {{"model", {{"init_from", (kept.folder_of(weights) / "export").string()}}}};
  });
  Trash trash(kept.folder.home());
  CHECK(trash.held_by(reader).starts_with("it is running, as process " + std::to_string(::getpid()) + " on "));
  CHECK(trash.held_by(parent) == "run " + reader + ", which is running, started from it");
  CHECK(trash.held_by(source) == "run " + continued + ", which is running, reads from its folder");
  CHECK(trash.held_by(weights) == "run " + tuned + ", which is running, reads from its folder");
  CHECK(trash.held_by(other).empty());
  CHECK(trash.children(parent) == std::vector{reader});
  CHECK(error_of([&] {
          trash.remove({other, parent});
        }) == "2: nothing was removed, because this is in use:\n  " + parent + ": run " + reader +
                  ", which is running, started from it");
  CHECK(trash.runs().empty());
  // A run that was moved to the trash before another one began to use it is not purged.
  kept.folder.raw().execute("UPDATE run SET deleted = 1 WHERE name = 'source'");
  CHECK(error_of([&] { trash.purge(source); }) ==
        "2: run " + source + " was not purged: run " + continued + ", which is running, reads from its folder");
  // When they have ended, all can go.
  kept.folder.raw().execute("UPDATE attempt SET process_start = 1");
  Trash later(kept.folder.home());
  later.remove({other, parent, reader, weights});
  CHECK(later.runs().size() == 5);
}

TEST_CASE("a trial of a running sweep is not removed") {
  Kept kept;
  const auto trial = kept.add("trial");
  auto raw = kept.folder.raw();
  raw.execute(
      "INSERT INTO config VALUES ('s', '{}'); INSERT INTO sweep (id, name, status, seed, started, space, recipe, "
      "folder, host, "
      "machine, boot_id, pid_namespace, pid, process_start, heartbeat) SELECT 'sweep-1', 's', 'running', 1, 1, 's', "
      "'s', 'x', host, "
      "machine, boot_id, pid_namespace, pid, process_start, heartbeat FROM attempt;"
      "INSERT INTO trial (sweep, number, draw, status, parameters, run) VALUES (1, 3, 3, 'finished', '{}', 1)");
  Trash trash(kept.folder.home());
  CHECK(trash.held_by(trial) == "it is trial 3 of sweep sweep-1, which is running");
  raw.execute("UPDATE sweep SET process_start = 1");
  CHECK(trash.held_by(trial).empty());
  trash.remove({trial});
  trash.purge(trial);
  CHECK(raw.integer("SELECT run IS NULL FROM trial") == 1);  // the sweep's history stays
}

TEST_CASE("a purged run leaves no row, no text and no folder, and its id says what became of it") {
  Kept kept;
  const auto a = kept.add("a");
  std::string patch, script;
  {
    Ledger ledger(kept.folder.home(), Ledger::Mode::write);
    patch = ledger.keep("a patch");
    script = ledger.keep("a script");
  }
  // Texts that are named only in JSON: the patch of the code, and scripts.
  kept.folder.raw().run(
      "UPDATE run SET git = json_object('patch', json_object('digest', ?)), annotations = json_object('x', "
      "json_array(?))",
      patch, script);
  std::map<std::string, int64_t> before;
  for (const char* table : {"run", "attempt", "metric", "metric_last", "event", "artifact", "config", "edge", "change"})
    before[table] = kept.rows(table);
  const auto b = kept.add("b", "finished", [&](NewRun& run) { run.parent = a; });
  Trash trash(kept.folder.home());
  CHECK(error_of([&] { trash.purge(b); }) == "2: run " + b + " is not in the trash");
  trash.remove({b});
  CHECK(trash.purge(b) == 1000);
  CHECK_FALSE(trash.has(b));
  trash.remove_unreferenced_texts();
  for (const auto& [table, rows] : before) {
    INFO(table);
    CHECK(kept.rows(table) == rows);
  }
  CHECK(Ledger(kept.folder.home(), Ledger::Mode::read).kept(patch) == "a patch");
  CHECK(Ledger(kept.folder.home(), Ledger::Mode::read).kept(script) == "a script");
  CHECK_FALSE(fs::exists(kept.folder_of(b)));
  CHECK(std::distance(fs::directory_iterator(fs::path(kept.folder.home()) / "runs"), {}) == 1);
  CHECK(kept.folder.raw().integer("SELECT count(*) FROM pragma_foreign_key_check") == 0);
  CHECK(error_of([&] {
          (void)Ledger(kept.folder.home(), Ledger::Mode::read).find_run(b);
        }).starts_with("2: run " + b + " was deleted for good at "));
}

TEST_CASE("a purge deletes no folder but that of a run in the ledger's folder") {
  Kept kept;
  const auto other = kept.add("other"), a = kept.add("a");
  const fs::path mine = kept.folder.path / "mine";
  fs::create_directories(mine);
  write_file_atomic(mine / "keep", "x");
  for (const std::string& folder : {mine.string(), std::string("../mine"), "runs/" + other + "/../../../mine",
                                    std::string("runs"), std::string("."), "runs/" + other + "/sub"}) {
    const auto id = kept.add("b");
    kept.folder.raw().run("UPDATE run SET folder = ?, deleted = 1 WHERE id = ?", folder, id);
    CHECK(Trash(kept.folder.home()).purge(id) == 0);
    CHECK(kept.folder.raw().integer("SELECT count(*) FROM run WHERE name = 'b'") == 0);
  }
  CHECK(fs::exists(mine / "keep"));
  CHECK(fs::exists(kept.folder_of(other) / "file"));
  CHECK(fs::exists(kept.folder_of(a) / "file"));
}

TEST_CASE("a purge that was killed between the folder's rename and the commit can be restored or repeated") {
  Kept kept;
  const auto a = kept.add("a"), b = kept.add("b");
  Trash trash(kept.folder.home());
  trash.remove({a, b});
  for (const auto& id : {a, b})
    fs::rename(kept.folder_of(id), kept.folder_of(id).parent_path() / ("." + id + ".purged"));
  CHECK(trash.remove_leftovers().purged.count == 0);  // of runs with rows, nothing is a leftover
  trash.restore({a});
  CHECK(fs::exists(kept.folder_of(a) / "file"));
  CHECK(trash.purge(b) == 1000);
  // Killed after the commit: only the hidden folder is left.
  fs::create_directories(kept.folder_of("x").parent_path() / ".20250101-000000-aaaa.purged");
  write_file_atomic(kept.folder_of(".20250101-000000-aaaa.purged") / "file", "12345");
  // Of imports, what nobody has written to for a day.
  const fs::path runs = fs::path(kept.folder.home()) / "runs";
  for (const char* id : {"x", "y"}) {
    fs::create_directories(import_folder(runs, id, 1));
    write_file_atomic(import_folder(runs, id, 1) / "file", "123");
  }
  fs::last_write_time(import_folder(runs, "x", 1), fs::file_time_type::clock::now() - std::chrono::hours(25));
  for (const bool dry : {true, false}) {
    const auto left = trash.remove_leftovers(dry);
    CHECK((left.purged.count == 1 && left.purged.bytes == 5));
    CHECK((left.imports.count == 1 && left.imports.bytes == 3));
  }
  CHECK(fs::exists(import_folder(runs, "y", 1) / "file"));
  fs::remove_all(import_folder(runs, "y", 1));
  CHECK(std::distance(fs::directory_iterator(fs::path(kept.folder.home()) / "runs"), {}) == 1);
}

TEST_CASE("a checkpoint is checked again in the moment of its removal") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const auto source = ledger.begin_run(new_run(folder, "source"));
  const fs::path path = fs::path(ledger.run_dir(source)) / "checkpoints/step-000010";
  int removed = 0;
  const auto remove = [&] { return remove_unused_checkpoint(folder.home(), source, path, [&] { ++removed; }); };
  CHECK_FALSE(remove().empty());  // the run goes on
  ledger.finish_run(source, "finished", 0, "");
  auto later = new_run(folder, "later");
  later.annotations["start"] = path.string();
  const auto child = ledger.begin_run(later);
  CHECK_FALSE(remove().empty());
  ledger.finish_run(child, "interrupted", 130, "");
  CHECK(remove() == "another run starts from step-000010");
  CHECK(removed == 0);
  ledger.annotate(child, "start", nullptr);
  ledger.flush();
  CHECK(remove().empty());
  CHECK(removed == 1);
}
