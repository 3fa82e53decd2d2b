// SIGKILL while a ledger is migrated, garbage is collected, runs are purged, and bundles are written and imported, at chosen moments
// and at random ones. Nothing is lost, and nothing is left half done. RUNNER_KILLS: how many kills of each kind.
#include <csignal>
#include <cstdlib>
#include <random>
#include <set>

#include "runner/ledger/bundle.hpp"
#include "runner/ledger/migrations.hpp"
#include "support.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// Runs a command again and again, killed at each of the faults in turn, later also when it gets there for the second
/// to fourth time, and at random moments between them. Calls `check` after each kill and `restart` after each time that
/// it ended by itself. Each fault must have killed once.
void kill_repeatedly(const Workplace& place, const std::vector<std::string>& command,
                     const std::vector<std::string>& faults, int kills, const std::function<void()>& check,
                     const std::function<void()>& restart) {
  std::mt19937 random(7);
  int done = 0, tries = 0;
  size_t faulted = 0;
  std::set<std::string> hit;
  std::chrono::milliseconds longest(50);
  while (done < kills && tries < 20 * kills) {
    std::string fault;
    CommandResult result;
    if (tries++ % 3 == 2) {
      const auto begun = std::chrono::steady_clock::now();
      const pid_t pid = place.start(command);
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % static_cast<unsigned>(longest.count() + 1)));
      ::kill(pid, SIGKILL);
      result = place.finish(pid);
      if (result.code == 0)
        longest = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
    } else {
      fault = faults[faulted % faults.size()];
      const unsigned times = faulted++ < faults.size() ? 1 : 1 + random() % 4;
      result = place.run(command, {{"RUNNER_FAULT", fault + ":" + std::to_string(times)}});
      if (result.code == 128 + SIGKILL) hit.insert(fault);
    }
    INFO(result.err);
    REQUIRE((result.code == 0 || result.code == 128 + SIGKILL));
    check();
    if (result.code == 0)
      restart();
    else
      ++done;
  }
  CHECK(done == kills);
  CHECK(hit == std::set<std::string>(faults.begin(), faults.end()));
}

int kills() {
  const char* asked = std::getenv("RUNNER_KILLS");
  return asked ? std::atoi(asked) : 9;
}

}  // namespace

TEST_CASE("expectation 36: kills during a migration leave the old ledger or the new one, and the copy is whole",
          "[kills]") {
  Workplace place;
  const fs::path file = place.home() / "ledger.db", old = place.path() / "old.db";
  fs::create_directories(place.home());
  {
    sqlite::Database database(old, sqlite::Access::create);
    migrate(database, migrations().first(9));
    database.execute(
        "INSERT INTO config VALUES ('h', '{}');"
        "INSERT INTO run (id, name, status, strategy, world_size, started, tags, notes, folder, working_directory, "
        "argv, "
        "build_id, git, host, recipe, resolved, config, origins, plan) VALUES ('20250101-000000-aaaa', 'old', "
        "'finished', "
        "'ddp', 1, 5.5, '[]', '', 'runs/x', '/', '[]', '', 'null', 'null', 'h', 'h', 'h', 'h', 'h');"
        "INSERT INTO key VALUES (1, 'loss');"
        "WITH RECURSIVE n (step) AS (SELECT 1 UNION ALL SELECT step + 1 FROM n WHERE step < 300000) "
        "INSERT INTO metric SELECT 1, 1, step, step / 2.0 FROM n;"
        "INSERT INTO metric_last VALUES (1, 1, 300000, 150000, 0.5, 150000);");
  }
  const auto start = [&] {
    for (const auto& entry : fs::directory_iterator(place.home())) fs::remove_all(entry.path());
    fs::copy_file(old, file);
  };
  const auto newest = std::ssize(migrations());
  const auto check = [&] {
    for (const auto& entry : fs::directory_iterator(place.home())) {
      const std::string name = entry.path().filename().string();
      const bool copy = name.starts_with("ledger.db.before-") && !name.ends_with(".tmp") &&
                        name.find("-journal") == std::string::npos;
      if (name != "ledger.db" && !copy) continue;
      INFO(name);
      CHECK(is_whole(entry.path()));
      sqlite::Database database(entry.path(), sqlite::Access::existing);
      const int64_t version = database.integer("PRAGMA user_version");
      CHECK((version == 9 || (version == newest && !copy)));
      CHECK(database.integer("SELECT count(*) FROM metric") == 300000);
      if (version == newest) CHECK(database.integer("SELECT count(*) FROM runs") == 1);
    }
  };
  start();
  kill_repeatedly(place, {"ls", "--json"}, {"backup", "backup written", "migration", "migrated", "migration committed"},
                  kills(), check, start);
  const auto rows = place.run({"ls", "--json"}).json().at("runs");
  CHECK(rows.size() == 1);
}

TEST_CASE("expectation 33: kills during gc leave complete checkpoints only, and those that the rule keeps", "[kills]") {
  Workplace place;
  const auto id = add_run(place.home(), "a");
  const fs::path run_dir = place.home() / "runs" / id;
  kill_repeatedly(
      place, {"gc", "--keep-best", "1", "--yes"}, {"retention", "gc"}, kills(),
      [&] {
        const auto steps = sound_checkpoints(run_dir);  // each one opens and verifies
        for (const int64_t kept : {30, 60}) CHECK(std::ranges::find(steps, kept) != steps.end());
      },
      [&] {
        CHECK(sound_checkpoints(run_dir) == std::vector<int64_t>{30, 60});
        CHECK(std::distance(fs::directory_iterator(run_dir / "checkpoints"), {}) == 2);
        for (const int64_t step : {10, 20, 40, 50}) publish(run_dir, step, 1.0);
        publish(run_dir, 60, 1.0);  // is the newest again
      });
}

TEST_CASE("kills during a purge leave a run whole in the trash, or gone", "[kills]") {
  Workplace place;
  const auto stays = add_run(place.home(), "stays");
  std::string id = add_run(place.home(), "a");
  REQUIRE(place.run({"rm", "a"}).code == 0);
  const auto begin_again = [&] {
    CHECK(place.run({"gc", "--keep-last", "10", "--yes"}).code == 0);
    CHECK(std::distance(fs::directory_iterator(place.home() / "runs"), {}) == 1);
    id = add_run(place.home(), "a");
    REQUIRE(place.run({"rm", "a"}).code == 0);
  };
  kill_repeatedly(
      place, {"purge", "--yes"}, {"purge renamed", "purge rows", "purge committed"}, kills(),
      [&] {
        auto database = raw(place.home());
        CHECK(is_whole(place.home() / "ledger.db"));
        const bool there = database.query("SELECT 1 FROM run WHERE id = ?", id).step();
        CHECK(database.integer("SELECT count(*) FROM metric") == (there ? 400 : 200));
        if (there) {
          CHECK(place.run({"restore", id}).code == 0);
          CHECK(sound_checkpoints(place.home() / "runs" / id).size() == 6);
          CHECK(place.run({"rm", id}).code == 0);
        } else {
          CHECK_FALSE(fs::exists(place.home() / "runs" / id));
          begin_again();
        }
        CHECK(sound_checkpoints(place.home() / "runs" / stays).size() == 6);
      },
      [] {});
}

TEST_CASE("expectation 35: kills while a bundle is written leave no file or a whole one", "[kills]") {
  Workplace place;
  add_run(place.home(), "a", 3000);
  const fs::path file = place.path() / "a.bundle";
  kill_repeatedly(
      place, {"export", "--bundle", "a", "--files", "all", "-o", file.string()}, {"bundle", "bundle written"}, kills(),
      [&] {
        if (!fs::exists(file)) return;
        Workplace other;
        CHECK(other.run({"import", file.string()}).code == 0);
        CHECK(raw(other.home()).integer("SELECT count(*) FROM metric") == 6000);
        fs::remove(file);
      },
      [] {});
}

TEST_CASE("expectation 35: kills during an import leave all runs or none, and the next import completes it",
          "[kills]") {
  Workplace here, there;
  const auto a = add_run(here.home(), "a", 2000), b = add_run(here.home(), "b", 2000, a);
  const fs::path file = here.path() / "two.bundle";
  write_bundle(here.home().string(), {a, b}, file, BundledFiles::all);
  const auto other = add_run(there.home(), "other");
  const auto check_all = [&] {
    auto database = raw(there.home());
    CHECK(is_whole(there.home() / "ledger.db"));
    CHECK(database.integer("SELECT count(*) FROM metric WHERE run = (SELECT run FROM run WHERE name = 'other')") ==
          200);
    const int64_t runs = database.integer("SELECT count(*) FROM run WHERE name IN ('a', 'b')");
    CHECK((runs == 0 || runs == 2));
    CHECK(database.integer("SELECT count(*) FROM metric") == 200 + 4000 * runs);
    CHECK(database.integer("SELECT count(*) FROM edge") == (runs == 2 ? 1 : 0));
    if (runs == 2)
      for (const auto& id : {a, b}) CHECK(sound_checkpoints(there.home() / "runs" / id).size() == 6);
    return runs == 2;
  };
  const auto start_again = [&] {
    CHECK(there.run({"rm", "a", "b"}).code == 0);
    CHECK(there.run({"purge", "--yes"}).code == 0);
  };
  kill_repeatedly(
      there, {"import", file.string()}, {"import", "import extracted", "import rows", "import committed"}, kills(),
      [&] {
        if (check_all()) start_again();
      },
      [] {});
  CHECK(there.run({"import", file.string()}).code == 0);
  CHECK(check_all());
  CHECK(sound_checkpoints(there.home() / "runs" / other).size() == 6);
}

TEST_CASE("kills during an import of another program's runs leave whole runs, and the next import adds the others",
          "[kills]") {
  Workplace place;
  std::string table = "run,step,loss\n";
  for (const char* run : {"a", "b", "c"})
    for (int step = 0; step < 2000; ++step) table += fmt::format("{},{},{}\n", run, step, step + 0.5);
  place.write("t.csv", table);
  const auto check = [&] {
    if (!fs::exists(place.home() / "ledger.db")) return;
    CHECK(is_whole(place.home() / "ledger.db"));
    auto database = raw(place.home());
    if (database.integer("PRAGMA user_version") == 0) return;
    const int64_t runs = database.integer("SELECT count(*) FROM run");
    CHECK(runs <= 3);
    CHECK(database.integer("SELECT count(*) FROM metric") == 2000 * runs);
    CHECK(database.integer("SELECT count(*) FROM metric_last") == runs);
    CHECK(database.integer("SELECT count(*) FROM imported") == runs);
    if (runs == 3) fs::remove_all(place.home());
  };
  kill_repeatedly(place, {"import", "t.csv"}, {"import run", "import run committed"}, kills(), check, check);
  CHECK(place.run({"import", "t.csv"}).code == 0);
  CHECK(raw(place.home()).integer("SELECT count(*) FROM metric") == 6000);
}
