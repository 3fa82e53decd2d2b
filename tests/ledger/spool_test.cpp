// Faults of the ledger while a run goes on: its file is deleted, full, write-protected or damaged. Nothing of the run is lost.
#include "runner/ledger/spool.hpp"

#include <sys/wait.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <fstream>

#include "runner/base/files.hpp"
#include "runner/ledger/orphans.hpp"
#include "support.hpp"
#include "tests/report/capture.hpp"
#include "tests/support/small_disk.hpp"

using namespace runner;
using testing::SmallDisk;

namespace {

using Points = std::vector<std::pair<int64_t, double>>;

/// A running run whose folder is not in the ledger's folder.
struct Going {
  LedgerFolder folder;
  std::unique_ptr<Ledger> ledger;
  std::string id;
  fs::path runs() const { return folder.path / "elsewhere"; }
  fs::path spool() const { return spool_in(runs() / id); }

  explicit Going(bool in_home = false) {
    ledger = std::make_unique<Ledger>(folder.home(), Ledger::Mode::write);
    auto run = new_run(folder);
    if (!in_home) run.run_dir_root = runs();
    id = ledger->begin_run(run);
    ledger->begin_attempt(id, "start");
    add(1, 5);
    ledger->flush();
  }
  void add(int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step)
      ledger->metrics(id, {{"loss", step, 1.0 / static_cast<double>(step)}});
    ledger->event(id, "note", {{"step", last}});
  }
  Points points() { return Ledger(folder.home(), Ledger::Mode::read).points(id, "loss"); }
  std::string status() { return Ledger(folder.home(), Ledger::Mode::read).show(id).at("status"); }
  /// What the error of a damaged ledger tells the user to do.
  void move_damaged_away() {
    CHECK(error_of([&] { Ledger(folder.home(), Ledger::Mode::write).runs(); }).starts_with("4: "));
    for (const char* end : {"", "-wal", "-shm"}) fs::remove(folder.file().string() + end);
    Ledger next(folder.home(), Ledger::Mode::write);
  }
  size_t notes() { return Ledger(folder.home(), Ledger::Mode::read).show(id).at("events").size(); }
};

Points expected(int64_t last) {
  Points points;
  for (int64_t step = 1; step <= last; ++step) points.emplace_back(step, 1.0 / static_cast<double>(step));
  return points;
}

void remove_ledger(const LedgerFolder& folder) {
  for (const char* end : {"", "-wal", "-shm"}) fs::remove(folder.file().string() + end);
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// One warning when the record leaves the ledger, and one message when it is back.
void check_told_once(const std::string& told) {
  INFO(told);
  CHECK(count(told, "warning: ") == 1);
  CHECK(count(told, "; the training goes on, and its record goes to ") == 1);
  CHECK(count(told, " can be written again; nothing was lost\n") == 1);
}

}  // namespace

TEST_CASE("expectation 12: a ledger that is deleted while a run goes on: the run has all its points in the new one") {
  Going going;
  Capture told(2);
  remove_ledger(going.folder);
  going.add(6, 10);
  going.ledger->flush();
  CHECK(fs::exists(going.spool()));
  CHECK_FALSE(fs::exists(going.folder.file()));
  going.ledger->annotate(going.id, "measured", {{"x", 1}});
  CHECK(going.ledger->begin_attempt(going.id, "restart", 8) == 2);
  going.add(9, 12);
  going.ledger->finish_run(going.id, "finished", 0, "");
  going.ledger.reset();
  check_told_once(told.text());
  CHECK(going.points() == expected(12));
  CHECK(going.status() == "finished");
  CHECK(Ledger(going.folder.home(), Ledger::Mode::read).show(going.id).at("attempts").size() == 2);
  CHECK(going.folder.raw().text("PRAGMA integrity_check") == "ok");
  CHECK_FALSE(fs::exists(going.spool()));
}

TEST_CASE("expectation 12: what a killed process wrote beside the run is added by the next command") {
  Going going(/*in_home=*/true);
  const fs::path spool = spool_in(fs::path(going.folder.home()) / "runs" / going.id);
  going.ledger.reset();
  const pid_t child = ::fork();
  if (child == 0) {
    Ledger ledger(going.folder.home(), Ledger::Mode::write);
    going.folder.raw().execute("UPDATE run SET status = 'failed'");  // or reopen_run() would refuse
    ledger.reopen_run(going.id, new_run(going.folder));
    ledger.begin_attempt(going.id, "resume", 5);
    remove_ledger(going.folder);
    for (int64_t step = 6; step <= 9; ++step)
      ledger.metrics(going.id, {{"loss", step, 1.0 / static_cast<double>(step)}});
    ledger.flush();
    ::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(fs::exists(spool));
  { Ledger ledger(going.folder.home(), Ledger::Mode::write); }  // makes a new one
  CHECK(going.points() == expected(9));
  CHECK(going.status() == "lost");
  CHECK_FALSE(fs::exists(spool));
}

TEST_CASE("expectation 12: on a full disk the record goes on beside the run, and comes back when there is space") {
  LedgerFolder place;
  SmallDisk disk(place.path / "disk");
  const std::string home = disk.path / "home";
  auto run = new_run(place);
  run.run_dir_root = place.path / "elsewhere";
  auto ledger = std::make_unique<Ledger>(home, Ledger::Mode::write);
  const std::string id = ledger->begin_run(run);
  ledger->begin_attempt(id, "start");
  ledger->metrics(id, {{"loss", 1, 1.0}});
  ledger->flush();
  disk.fill();
  Capture told(2);
  for (int64_t step = 2; step <= 3000; ++step) ledger->metrics(id, {{"loss", step, 1.0 / static_cast<double>(step)}});
  ledger->flush();
  const fs::path spool = spool_in(fs::path(run.run_dir_root) / id);
  CHECK(fs::exists(spool));
  SECTION("the process ends in time") {
    fs::remove(disk.path / "filler");
    ledger->finish_run(id, "finished", 0, "");
    ledger.reset();
    check_told_once(told.text());
    CHECK_FALSE(fs::exists(spool));
  }
  SECTION("the disk is still full at the end of the run: the next command adds the record") {
    ledger->finish_run(id, "finished", 0, "");
    ledger.reset();
    CHECK(fs::exists(spool));
    fs::remove(disk.path / "filler");
    CHECK(Ledger(home, Ledger::Mode::read).runs().at(0).status == "running");  // its process is alive: this one
    sqlite::Database(fs::path(home) / "ledger.db", sqlite::Access::existing)
        .execute("UPDATE attempt SET process_start = 1");
    CHECK(Ledger(home, Ledger::Mode::read).runs().at(0).status == "finished");
    CHECK_FALSE(fs::exists(spool));
  }
  CHECK(Ledger(home, Ledger::Mode::read).points(id, "loss") == expected(3000));
  CHECK(sqlite::Database(fs::path(home) / "ledger.db", sqlite::Access::existing).text("PRAGMA integrity_check") ==
        "ok");
}

TEST_CASE("while the disk is still full, a run that has ended is read from the record beside it") {
  LedgerFolder place;
  SmallDisk disk(place.path / "disk");
  const std::string home = disk.path / "home";
  auto run = new_run(place);
  run.run_dir_root = place.path / "elsewhere";
  const pid_t child = ::fork();
  if (child == 0) {
    auto ledger = std::make_unique<Ledger>(home, Ledger::Mode::write);
    const std::string id = ledger->begin_run(run);
    ledger->begin_attempt(id, "start");
    ledger->metrics(id, {{"loss", 1, 1.0}});
    ledger->flush();
    disk.fill();
    for (int64_t step = 2; step <= 3000; ++step) ledger->metrics(id, {{"loss", step, 1.0 / static_cast<double>(step)}});
    ledger->flush();
    ledger->finish_run(id, "finished", 0, "");
    ledger.reset();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const std::string id = fs::directory_iterator(run.run_dir_root)->path().filename();
  const fs::path spool = spool_in(fs::path(run.run_dir_root) / id);
  REQUIRE(fs::exists(spool));
  for (int look = 0; look < 2; ++look) {
    Capture told(2);
    const Ledger ledger(home, Ledger::Mode::read);
    CHECK(ledger.runs().at(0).status == "finished");
    CHECK(ledger.points(id, "loss") == expected(3000));
    CHECK(error_of([&] {
            Ledger(home, Ledger::Mode::read).edit({id}, {.added_tags = {std::string(200'000, 't')}});
          }).find("the disk is full") != std::string::npos);  // an edit is made in the file, or refused
    CHECK(live_uses(home, {id}).empty());                     // as the list says: gc and rm may take it
    const auto words = "the record in " + spool.string() + " is not in the ledger yet: the disk is full; ";
    CHECK(count(told.text(), words) == (look == 0 ? 1 : 0));  // once in a process
    CHECK(fs::exists(spool));
  }
  fs::remove(disk.path / "filler");
  CHECK(Ledger(home, Ledger::Mode::read).points(id, "loss") == expected(3000));
  CHECK_FALSE(fs::exists(spool));
}

TEST_CASE("expectation 12: with the run's folder on the full disk, the record goes to memory") {
  LedgerFolder place;
  SmallDisk disk(place.path / "disk");
  fs::create_directories(place.path / "memory");
  const Variable memory("RUNNER_SPOOL_FOLDER", (place.path / "memory").string());
  const std::string home = disk.path / "home";
  auto run = new_run(place);
  run.run_dir_root = home + "/runs";
  auto ledger = std::make_unique<Ledger>(home, Ledger::Mode::write);
  const std::string id = ledger->begin_run(run);
  ledger->begin_attempt(id, "start");
  ledger->metrics(id, {{"loss", 1, 1.0}});
  ledger->flush();
  disk.fill();
  for (int64_t step = 2; step <= 3000; ++step) ledger->metrics(id, {{"loss", step, 1.0 / static_cast<double>(step)}});
  ledger->flush();
  const fs::path spool = find_spool(home, fs::path(run.run_dir_root) / id);
  REQUIRE(spool.string().starts_with((place.path / "memory").string()));
  ledger->finish_run(id, "finished", 0, "");
  ledger.reset();
  CHECK(fs::exists(spool));  // the disk is still full
  fs::remove(disk.path / "filler");
  sqlite::Database(fs::path(home) / "ledger.db", sqlite::Access::existing)
      .execute("UPDATE attempt SET process_start = 1");
  CHECK(Ledger(home, Ledger::Mode::read).runs().at(0).status == "finished");
  CHECK_FALSE(fs::exists(spool));
  CHECK(Ledger(home, Ledger::Mode::read).points(id, "loss") == expected(3000));
}

TEST_CASE("expectation 12: a ledger whose files are cut to nothing") {
  Going going(/*in_home=*/true);
  for (const char* end : {"", "-wal"}) REQUIRE(::truncate((going.folder.file().string() + end).c_str(), 0) == 0);
  going.add(6, 10);
  CHECK_NOTHROW(going.ledger->flush());
  going.ledger->finish_run(going.id, "finished", 0, "");
  going.ledger.reset();
  CHECK(going.points().back() == std::pair<int64_t, double>(10, 0.1));  // an empty file is a new ledger
  CHECK(going.folder.raw().integer("SELECT count(*) FROM metric WHERE step > 5") == 5);
  CHECK(going.status() == "finished");
}

TEST_CASE("expectation 12: a ledger that is overwritten: the run's later points are whole") {
  Going going(/*in_home=*/true);
  {
    std::fstream file(going.folder.file(), std::ios::in | std::ios::out | std::ios::binary);
    const auto size = fs::file_size(going.folder.file());
    const std::string garbage(size, '\x5a');
    file.write(garbage.data(), static_cast<std::streamsize>(size));
  }
  std::ofstream(going.folder.file().string() + "-wal", std::ios::binary) << std::string(50000, '\x5a');
  going.add(6, 10);
  CHECK_NOTHROW(going.ledger->flush());
  going.ledger->finish_run(going.id, "finished", 0, "");
  going.ledger.reset();
  going.move_damaged_away();
  CHECK(going.folder.raw().integer("SELECT count(*) FROM metric WHERE step > 5") == 5);
  CHECK(going.status() == "finished");
}

TEST_CASE("a spool in memory is not read if the folder is another user's, or if others may write it") {
  Going going(/*in_home=*/true);
  const fs::path run_folder = fs::path(going.folder.home()) / "runs" / going.id, beside = spool_in(run_folder);
  fs::create_directories(going.folder.path / "memory");
  const Variable memory("RUNNER_SPOOL_FOLDER", (going.folder.path / "memory").string());
  remove_ledger(going.folder);
  going.add(6, 7);
  going.ledger->flush();
  const fs::path in_memory = spool_places(going.folder.home(), run_folder).at(1);
  fs::create_directories(in_memory.parent_path());
  for (const char* end : {"", "-wal"})
    if (fs::exists(beside.string() + end)) fs::copy_file(beside.string() + end, in_memory.string() + end);
  going.ledger->finish_run(going.id, "finished", 0, "");
  going.ledger.reset();
  remove_ledger(going.folder);
  fs::remove(beside);
  fs::permissions(in_memory.parent_path(), fs::perms(0777));
  CHECK(find_spool(going.folder.home(), run_folder).empty());
  CHECK_FALSE(has_spools(going.folder.home()));
  fs::permissions(in_memory.parent_path(), fs::perms(0700));
  CHECK(find_spool(going.folder.home(), run_folder) == in_memory);
  CHECK(has_spools(going.folder.home()));
  // The folder of the run is not one without a run: its record waits in memory.
  { sqlite::Database(going.folder.file(), sqlite::Access::create).execute("CREATE TABLE run (folder TEXT)"); }
  CHECK(orphaned_folders(going.folder.home(), /*hide=*/false).empty());
  fs::remove(in_memory);
  CHECK(orphaned_folders(going.folder.home(), /*hide=*/false) == std::vector<fs::path>{run_folder});
}

TEST_CASE("a spool that is not of the run that its place names is not added") {
  Going going;
  remove_ledger(going.folder);
  going.add(6, 7);
  going.ledger->flush();
  const fs::path copy = spool_in(going.folder.path / "copies" / "other");
  fs::create_directories(copy.parent_path());
  for (const char* end : {"", "-wal"})
    if (fs::exists(going.spool().string() + end)) fs::copy_file(going.spool().string() + end, copy.string() + end);
  going.ledger->finish_run(going.id, "finished", 0, "");
  going.ledger.reset();
  { Ledger makes_a_new_one(going.folder.home(), Ledger::Mode::write); }
  auto raw = going.folder.raw();
  CHECK(error_of([&] { merge_spool(raw, copy, /*same_numbers=*/false); }) ==
        "4: the record in " + copy.string() + " is not that of run other");
}

TEST_CASE("a spool is not added if another process has resumed the run since") {
  Going going;
  remove_ledger(going.folder);
  going.add(6, 7);
  going.ledger->flush();
  const fs::path copy = spool_in(going.folder.path / "copies" / going.id);
  fs::create_directories(copy.parent_path());
  fs::copy_file(going.spool(), copy);
  if (fs::exists(going.spool().string() + "-wal"))
    fs::copy_file(going.spool().string() + "-wal", copy.string() + "-wal");
  going.ledger->finish_run(going.id, "failed", 1, "");
  going.ledger.reset();
  Ledger again(going.folder.home(), Ledger::Mode::write);
  again.reopen_run(going.id, new_run(going.folder));
  again.begin_attempt(going.id, "resume", 7);
  auto raw = going.folder.raw();
  CHECK_FALSE(merge_spool(raw, copy, /*same_numbers=*/false));
  CHECK(fs::exists(copy));
  CHECK(going.points() == expected(7));
}
