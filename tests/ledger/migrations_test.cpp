// Schemas: the shipped one does not change, older files are migrated completely or not at all, unknown and newer ones
// are refused.
#include "runner/ledger/migrations.hpp"

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <map>

#include "runner/base/files.hpp"
#include "support.hpp"

using namespace runner;
using sqlite::Access;
using sqlite::Database;

namespace {

const auto newest = static_cast<int64_t>(migrations().size());

/// The columns of each table, or of each view.
std::map<std::string, std::string> tables_of(Database& database, const std::string& type = "table") {
  std::map<std::string, std::string> tables;
  auto rows = database.query(
      "SELECT t.name, group_concat(trim(c.name || iif(t.type = 'view', '', ' ' || c.type) || iif(c.pk, ' pk', '')), "
      "', ' ORDER BY c.cid) FROM pragma_table_list AS t, pragma_table_xinfo(t.name) AS c "
      "WHERE t.name NOT LIKE 'sqlite%' AND t.type = ? GROUP BY t.name",
      type);
  while (rows.step()) tables[rows.text(0)] = rows.text(1);
  return tables;
}

/// A run with a point and an attempt, in a file of any schema.
void add_old_run(Database& old) {
  old.execute(
      "INSERT INTO config VALUES ('h', '{}');"
      "INSERT INTO run (id, name, status, strategy, world_size, started, tags, notes, folder, working_directory, argv, "
      "build_id, git, host, recipe, resolved, config, origins, plan) VALUES ('20250101-000000-aaaa', 'old', "
      "'finished', "
      "'ddp', 1, 5.5, '[]', '', 'runs/x', '/', '[]', '', 'null', 'null', 'h', 'h', 'h', 'h', 'h');"
      "INSERT INTO key VALUES (1, 'loss'); INSERT INTO metric VALUES (1, 1, 7, 0.25);"
      "INSERT INTO metric_last VALUES (1, 1, 7, 0.25, 0.25, 0.25);"
      "INSERT INTO attempt (attempt, run, number, reason, from_step, host, boot_id, pid_namespace, pid, process_start, "
      "started, "
      "heartbeat, ended) VALUES (1, 1, 1, 'start', 0, 'box', '', '', 1, 1, 5.5, 6.5, 7.5)");
}

}  // namespace

TEST_CASE("the schema is the published one") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  auto database = folder.raw();
  const std::map<std::string, std::string> published = {
      {"imported", "imported INTEGER pk, run INTEGER, time REAL, kind TEXT, source TEXT, origin TEXT, digest TEXT"},
      {"purged", "id TEXT pk, name TEXT, started REAL, time REAL, who TEXT"},
      {"artifact", "artifact INTEGER pk, run INTEGER, time REAL, kind TEXT, path TEXT, fields TEXT, saved INTEGER"},
      {"attempt",
       "attempt INTEGER pk, run INTEGER, number INTEGER, reason TEXT, from_step INTEGER, host TEXT, boot_id TEXT, "
       "pid_namespace TEXT, "
       "pid INTEGER, process_start INTEGER, started REAL, heartbeat REAL, ended REAL, strategy TEXT, world_size "
       "INTEGER, "
       "argv TEXT, build_id TEXT, git TEXT, config TEXT, machine TEXT"},
      {"calibration",
       "calibration INTEGER pk, time REAL, machine TEXT, ranks INTEGER, threads INTEGER, build_id TEXT, points TEXT, "
       "disturbed TEXT"},
      {"change", "change INTEGER pk, run INTEGER, time REAL, who TEXT, what TEXT, before TEXT, after TEXT"},
      {"config", "hash TEXT pk, content TEXT"},
      {"config_key", "name TEXT pk, path TEXT, numeric INTEGER"},
      {"edge", "source INTEGER pk, target INTEGER pk, kind TEXT pk"},
      {"end_point", "run INTEGER pk, key INTEGER pk, step INTEGER pk, replaces INTEGER, value REAL"},
      {"event", "event INTEGER pk, run INTEGER, time REAL, kind TEXT, fields TEXT, saved INTEGER"},
      {"higher_is_better", "pattern TEXT pk"},
      {"key", "key INTEGER pk, name TEXT, higher_is_better INTEGER"},
      {"metric", "run INTEGER pk, key INTEGER pk, step INTEGER pk, value REAL"},
      {"metric_last", "run INTEGER pk, key INTEGER pk, step INTEGER, value REAL, min REAL, max REAL"},
      {"run",
       "run INTEGER pk, id TEXT, name TEXT, status TEXT, strategy TEXT, world_size INTEGER, started REAL, ended REAL, "
       "steps INTEGER, "
       "exit_code INTEGER, message TEXT, tags TEXT, notes TEXT, folder TEXT, working_directory TEXT, argv TEXT, "
       "build_id TEXT, "
       "git TEXT, host TEXT, recipe TEXT, resolved TEXT, config TEXT, origins TEXT, plan TEXT, annotations TEXT, grp "
       "TEXT, "
       "archived REAL, deleted REAL, monitor TEXT"},
      {"sweep",
       "sweep INTEGER pk, id TEXT, name TEXT, status TEXT, seed INTEGER, started REAL, ended REAL, space TEXT, recipe "
       "TEXT, folder TEXT, message TEXT, seconds REAL, host TEXT, boot_id TEXT, pid_namespace TEXT, pid INTEGER, "
       "process_start INTEGER, heartbeat REAL, machine TEXT"},
      {"sweep_history", "sweep INTEGER pk, sequence INTEGER pk, trial INTEGER, time REAL, entry TEXT"},
      {"system_sample", "run INTEGER pk, key INTEGER pk, time REAL pk, value REAL"},
      {"trial",
       "sweep INTEGER pk, number INTEGER pk, draw INTEGER, status TEXT, parameters TEXT, objective REAL, run INTEGER, "
       "step INTEGER, reason TEXT, message TEXT, slot TEXT, tries INTEGER, started REAL, ended REAL"}};
  CHECK(tables_of(database) == published);
  CHECK(database.integer("PRAGMA user_version") == newest);
  CHECK(database.integer("PRAGMA application_id") == 0x52554e52);
  CHECK(database.text("PRAGMA journal_mode") == "wal");
  CHECK(database.integer("SELECT count(*) FROM pragma_table_list WHERE name = 'metric' AND wr = 1") == 1);
}

TEST_CASE("the views are the published ones, and their columns only grow at the end") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  auto database = folder.raw();
  const std::map<std::string, std::string> published = {
      {"artifacts", "run, time, kind, path, step, bytes, fields"},
      {"attempts",
       "run, number, reason, from_step, host, pid, started, heartbeat, ended, strategy, world_size, build_id"},
      {"changes", "run, time, who, what, before, after"},
      {"edges", "source, target, kind"},
      {"events", "run, time, kind, step, message, fields"},
      {"last_metrics", "run, name, step, value, min, max, best"},
      {"metrics", "run, name, step, value"},
      {"params", "run, name, value, type"},
      {"runs",
       "id, name, group_name, status, strategy, world_size, steps, started, ended, seconds, "
       "final_loss, metric, metric_value, best_value, exit_code, failure, message, tags, notes, sweep, trial, parent, "
       "host, git_commit, git_branch, git_dirty, build_id, working_directory, folder, archived, deleted"},
      {"sweeps", "id, name, status, seed, started, ended, seconds, message, host, folder"},
      {"trials",
       "sweep, number, run, status, parameters, objective, step, reason, message, slot, tries, started, ended"}};
  const auto views = tables_of(database, "view");
  for (const auto& [view, columns] : published) CHECK(views.at(view).starts_with(columns));
}

TEST_CASE("the embedded migrations are numbered without gaps and are those of the source tree") {
  int number = 0;
  for (const auto& migration : migrations()) {
    CHECK(std::string(migration.name).starts_with(fmt::format("{:03}_", ++number)));
    CHECK(migration.sql ==
          read_file(fs::path(RUNNER_SOURCE_DIR) / "schemas/ledger" / (std::string(migration.name) + ".sql")));
  }
  for (const auto& entry : fs::directory_iterator(fs::path(RUNNER_SOURCE_DIR) / "schemas/ledger"))
    if (entry.path().extension() == ".sql") --number;
  CHECK(number == 0);
}

TEST_CASE("a ledger with an older schema is migrated with its rows, also if it is only read") {
  for (const auto mode : {Ledger::Mode::read, Ledger::Mode::write}) {
    LedgerFolder folder;
    fs::create_directories(folder.home());
    {
      Database old(folder.file(), Access::create);
      migrate(old, migrations().first(1));
      add_old_run(old);
    }
    Ledger ledger(folder.home(), mode);
    REQUIRE(ledger.runs().size() == 1);
    CHECK(ledger.runs()[0].final_loss == 0.25);
    CHECK(ledger.points("20250101-000000-aaaa", "loss") == std::vector<std::pair<int64_t, double>>{{7, 0.25}});
    CHECK(folder.raw().integer("PRAGMA user_version") == newest);
    CHECK(folder.raw().integer("SELECT count(*) FROM trial") == 0);
    const auto attempt = ledger.show("20250101-000000-aaaa")["attempts"][0];
    CHECK(attempt["reason"] == "start");
    CHECK(attempt["strategy"].is_null());
    CHECK(attempt["config"].is_null());
  }
}

TEST_CASE("a migration that fails leaves the file as it was") {
  LedgerFolder folder;
  Database database(folder.path / "x.db", Access::create);
  migrate(database, migrations().first(1));
  const auto before = tables_of(database);
  const Migration broken[] = {migrations()[0],
                              {"002_broken", "CREATE TABLE half (a); INSERT INTO nowhere VALUES (1);"}};
  CHECK(error_of([&] { migrate(database, broken); }) ==
        "4: ledger " + (folder.path / "x.db").string() + ": no such table: nowhere");
  CHECK(tables_of(database) == before);
  CHECK(database.integer("PRAGMA user_version") == 1);
  migrate(database);
  CHECK(database.integer("PRAGMA user_version") == newest);
}

TEST_CASE("expectation 36: an older runner only reads a newer ledger, and says so when it should write") {
  LedgerFolder folder;
  std::string id;
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    id = ledger.begin_run(new_run(folder));
    ledger.begin_attempt(id, "start");
    ledger.metrics(id, {{"loss", 1, 2.5}});
    ledger.flush();
  }
  const auto known = std::ssize(migrations());
  // What a newer runner may have done: added a table and a column, and left a run whose process is gone.
  folder.raw().execute(
      fmt::format("CREATE TABLE later (a); ALTER TABLE run ADD COLUMN later TEXT; "
                  "UPDATE attempt SET process_start = 1; PRAGMA user_version = {}",
                  known + 1));
  const auto bytes = read_file(folder.file());
  {
    Ledger ledger(folder.home(), Ledger::Mode::read);
    CHECK(ledger.runs().at(0).status == "lost");
    CHECK(ledger.show(id).at("metrics").at("loss").at("last") == 2.5);
    CHECK(ledger.points(id, "loss").size() == 1);
  }
  CHECK(error_of([&] { Ledger ledger(folder.home(), Ledger::Mode::write); }) ==
        fmt::format(
            "4: the ledger {} has schema {}, and this runner knows schemas up to {} ({}): it was written by a newer "
            "runner, and this one can only read it. Use that one, or name another folder with RUNNER_HOME",
            folder.file().string(), known + 1, known, migrations().back().name));
  CHECK(folder.raw().integer("PRAGMA user_version") == known + 1);
  CHECK(folder.raw().text("SELECT status FROM run") == "running");
  CHECK(read_file(folder.file()) == bytes);
}

TEST_CASE("expectation 36: before a migration the ledger is copied, unless it has no runs") {
  LedgerFolder folder;
  fs::create_directories(folder.home());
  const fs::path copy = folder.file().string() + ".before-009";
  {
    Database old(folder.file(), Access::create);
    migrate(old, migrations().first(8));
    CHECK_FALSE(fs::exists(folder.file().string() + ".before-001"));
    old.execute("PRAGMA journal_mode = wal");
    add_old_run(old);
  }
  { Ledger ledger(folder.home(), Ledger::Mode::read); }
  for (const auto& [file, version] :
       {std::pair(copy, int64_t{8}), std::pair(folder.file(), std::ssize(migrations()))}) {
    Database database(file, Access::existing);
    CHECK(database.integer("PRAGMA user_version") == version);
    CHECK(database.text("PRAGMA integrity_check") == "ok");
    CHECK(database.text("SELECT id FROM run") == "20250101-000000-aaaa");
    CHECK(database.integer("SELECT count(*) FROM metric") == 1);
  }
  CHECK_FALSE(fs::exists(copy.string() + ".tmp"));
  // Put back, the copy is migrated again, and the first copy stays.
  fs::remove(folder.file());
  fs::copy_file(copy, folder.file());
  { Ledger ledger(folder.home(), Ledger::Mode::write); }
  CHECK(fs::exists(copy));
  CHECK(fs::exists(copy.string() + "-2"));
}

TEST_CASE("expectation 36: a ledger that cannot be copied is not migrated") {
  LedgerFolder folder;
  fs::create_directories(folder.home());
  Database old(folder.file(), Access::create);
  migrate(old, migrations().first(8));
  add_old_run(old);
  fs::create_directories(folder.file().string() + ".before-009.tmp/in the way");
  CHECK(error_of([&] { Ledger ledger(folder.home(), Ledger::Mode::write); })
            .starts_with("4: the ledger " + folder.file().string() +
                         " was not changed to the schema of this runner, because it cannot be copied first: "));
  CHECK(old.integer("PRAGMA user_version") == 8);
}

TEST_CASE("a file that is not a ledger is refused and not changed") {
  LedgerFolder folder;
  fs::create_directories(folder.home());
  const std::string file = folder.file().string();
  for (const auto mode : {Ledger::Mode::read, Ledger::Mode::write}) {
    auto open = [&] { Ledger ledger(folder.home(), mode); };
    const std::string text(5000, 'x');
    write_file_atomic(file, text);
    CHECK(error_of(open) ==
          "4: " + file +
              " is not a ledger: it is not an SQLite database. Move it away, or name another folder with RUNNER_HOME");
    CHECK(read_file(file) == text);

    fs::remove(file);
    Database(file, Access::create).execute("CREATE TABLE theirs (a)");
    CHECK(error_of(open) ==
          "4: " + file +
              " is not a ledger: it is an SQLite database of another program. Move it away, or name another "
              "folder with RUNNER_HOME");
    CHECK(folder.raw().text("PRAGMA journal_mode") == "delete");

    fs::remove(file);
    fs::create_directory(file);
    CHECK(error_of(open) == "4: cannot read or write the ledger " + file + ": Is a directory");
    fs::remove(file);
  }
  fs::remove_all(folder.home());
  std::ofstream(folder.home()) << "a file";
  CHECK(error_of([&] { Ledger ledger(folder.home(), Ledger::Mode::write); }) ==
        "4: cannot create the ledger's folder " + folder.home() + ": Not a directory");
}

TEST_CASE("the error of a damaged ledger explains how to save its rows") {
  LedgerFolder folder;
  {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    for (int i = 0; i < 20; ++i) ledger.begin_run(new_run(folder));
  }
  // Overwrites everything after the first page.
  const auto size = fs::file_size(folder.file());
  std::fstream file(folder.file(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096);
  const std::string garbage(size - 4096, '\x5a');
  file.write(garbage.data(), static_cast<std::streamsize>(garbage.size()));
  file.close();
  const std::string path = folder.file().string();
  CHECK(error_of([&] { Ledger(folder.home(), Ledger::Mode::read).runs(); }) ==
        "4: the ledger " + path +
            " is damaged (database disk image is malformed). Move it away to start a new one; `sqlite3 " + path +
            " .recover` may save its rows");
}
