// Runs whose supervisor is gone are shown as lost. Their end is their last activity. Running ones are not lost.
#include <sys/wait.h>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <csignal>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/ledger/process_identity.hpp"
#include "support.hpp"

using namespace runner;
using nlohmann::json;

namespace {

/// A child process that sleeps until it is killed.
struct Child {
  pid_t pid = ::fork();
  Child() {
    if (pid == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  ~Child() { reap(); }
  void kill() { ::kill(pid, SIGKILL); }
  void reap() {
    if (pid <= 0) return;
    kill();
    ::waitpid(pid, nullptr, 0);
    pid = 0;
  }
};

/// A ledger with one running run. The test changes its owner.
struct OneRun {
  LedgerFolder folder;
  std::string id;
  OneRun() {
    Ledger ledger(folder.home(), Ledger::Mode::write);
    id = ledger.begin_run(new_run(folder));
    ledger.begin_attempt(id, "start");
  }
  void owner(const std::string& assignments) { folder.raw().execute("UPDATE attempt SET " + assignments); }
  RunRow listed(Ledger::Mode mode = Ledger::Mode::read) { return Ledger(folder.home(), mode).runs().at(0); }
  std::string stored_status() { return folder.raw().text("SELECT status FROM run"); }
};

}  // namespace

TEST_CASE("a process whose run was purged does not write to a later run with the same row numbers") {
  LedgerFolder folder;
  Ledger writer(folder.home(), Ledger::Mode::write);
  const std::string first = writer.begin_run(new_run(folder));
  writer.begin_attempt(first, "start");
  writer.metrics(first, {{"loss", 1, 1.0}});
  writer.flush();
  // As if it had been purged, and another process had begun a run with its numbers.
  auto raw = folder.raw();
  raw.run("UPDATE run SET id = 'another' WHERE id = ?", first);
  raw.execute("UPDATE attempt SET pid = pid + 1; DELETE FROM metric; DELETE FROM metric_last");
  writer.metrics(first, {{"loss", 2, 2.0}});
  CHECK(error_of([&] { writer.flush(); }).empty());
  CHECK(raw.integer("SELECT count(*) FROM metric") == 0);
}

TEST_CASE("pid and start time identify a process, and a zombie counts as gone") {
  const ProcessIdentity me = this_process();
  CHECK(me.pid == ::getpid());
  CHECK(me.start_time > 0);
  CHECK_FALSE(is_gone(me, 0, me, 1e9));
  ProcessIdentity earlier = me;
  earlier.start_time -= 1;
  CHECK(is_gone(earlier, 1e9, me, 1e9));  // the pid was reused

  Child child;
  ProcessIdentity it = me;
  it.pid = child.pid;
  it.start_time = read_process_stat(child.pid).value().start_time;
  CHECK_FALSE(is_gone(it, 0, me, 1e9));
  child.kill();
  siginfo_t info;
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOWAIT) == 0);
  CHECK(is_gone(it, 1e9, me, 1e9));  // dead, not yet reaped
  child.reap();
  CHECK(is_gone(it, 1e9, me, 1e9));
}

TEST_CASE("after a reboot all processes are gone, if the machine is known to be the same") {
  ProcessIdentity me = this_process();
  me.machine = "2f7c";
  ProcessIdentity rebooted = me, namesake = me, unknown = me;
  rebooted.boot_id = namesake.boot_id = unknown.boot_id = "another";
  CHECK(is_gone(rebooted, 1e9, me, 1e9));
  namesake.machine = "9a01";  // another machine with the same host name
  CHECK_FALSE(is_gone(namesake, 1e9, me, 1e9));
  me.machine = unknown.machine = "";
  CHECK_FALSE(is_gone(unknown, 1e9, me, 1e9));
}

TEST_CASE("expectation 5: a process of another host, machine or pid namespace is judged by its heartbeat") {
  const ProcessIdentity me = this_process();
  ProcessIdentity away = me, namesake = me, contained = me;
  away.host = "elsewhere";
  away.boot_id = namesake.boot_id = "other";
  namesake.machine = "other";
  contained.pid_namespace = "pid:[1]";
  contained.start_time -= 1;
  for (const auto& owner : {away, namesake, contained}) {
    CHECK_FALSE(is_gone(owner, 1000, me, 1300));
    CHECK(is_gone(owner, 1000, me, 1301));
  }
}

TEST_CASE("a run stays running while its supervisor lives") {
  OneRun run;
  CHECK(run.listed().status == "running");
  CHECK(run.listed(Ledger::Mode::write).status == "running");
  run.owner(fmt::format("host = 'elsewhere', boot_id = 'other', heartbeat = {:.3f}", wall_seconds() - 60));
  CHECK(run.listed().status == "running");
}

TEST_CASE("expectation 5: a run whose supervisor is gone is listed as lost, and ended at its last heartbeat") {
  for (const std::string gone : {"boot_id = 'before the reboot'", "process_start = process_start - 1", "pid = 4194305",
                                 "host = 'elsewhere', boot_id = 'other'"}) {
    OneRun run;
    run.owner(gone + ", started = 1700000000, heartbeat = 1700000000.25");
    run.folder.raw().execute("UPDATE run SET started = 1700000000");
    const RunRow row = run.listed();
    CHECK(row.status == "lost");
    CHECK(row.ended == 1700000000.25);
    CHECK(run.stored_status() == "lost");
    CHECK(run.folder.raw().query("SELECT ended FROM attempt").bind().step());
  }
}

TEST_CASE("a lost run whose clock was set back does not end before it started") {
  OneRun run;
  run.owner("pid = 4194305, started = 2000000000, heartbeat = 1700000000");
  run.folder.raw().execute("UPDATE run SET started = 2000000000");
  const RunRow row = run.listed();
  CHECK(row.status == "lost");
  CHECK(row.ended == 2000000000.0);
  CHECK(seconds_taken(row, 2000000060) == 0);
  run.owner("ended = 1700000000");  // as earlier versions have recorded it
  CHECK(seconds_taken(run.listed(), 2000000060) == 0);
}

TEST_CASE("every write of a run updates its last activity") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  auto heartbeat = [&] {
    ledger.flush();
    auto row = folder.raw().query("SELECT heartbeat FROM attempt");
    row.step();
    return row.real(0);
  };
  auto forget = [&] { folder.raw().execute("UPDATE attempt SET heartbeat = 1"); };
  const double start = heartbeat();
  ledger.metrics(id, {{"loss", 1, 1.0}});
  CHECK(heartbeat() >= start);
  forget();
  ledger.event(id, "note", {{"message", "x"}});
  CHECK(heartbeat() >= start);
  forget();
  ledger.heartbeat(id);  // no update, because there was a write just now
  CHECK(heartbeat() == 1);
}

TEST_CASE("a lost run that writes again is running again") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const std::string id = ledger.begin_run(new_run(folder));
  ledger.begin_attempt(id, "start");
  folder.raw().execute("UPDATE run SET status = 'lost', ended = 5; UPDATE attempt SET ended = 5");
  ledger.metrics(id, {{"loss", 1, 1.0}});
  ledger.flush();
  CHECK(ledger.runs()[0].status == "running");
  CHECK_FALSE(ledger.runs()[0].ended);
  CHECK(ledger.show(id)["attempts"][0]["ended"].is_null());
}

TEST_CASE("a lost run can be reopened") {
  OneRun run;
  run.owner("pid = 4194305");
  Ledger ledger(run.folder.home(), Ledger::Mode::write);
  CHECK(ledger.runs()[0].status == "lost");
  ledger.reopen_run(run.id, new_run(run.folder));
  CHECK(ledger.begin_attempt(run.id, "resume", 0) == 2);
  CHECK(Ledger(run.folder.home(), Ledger::Mode::read).runs()[0].status == "running");
}

TEST_CASE("a run becomes lost although the heartbeat of an earlier attempt is later") {
  OneRun run;
  run.owner("pid = 4194305, heartbeat = 2000000000");  // the clock is set back after this attempt
  {
    Ledger ledger(run.folder.home(), Ledger::Mode::write);
    ledger.reopen_run(run.id, new_run(run.folder));
    ledger.begin_attempt(run.id, "resume", 0);
  }
  run.folder.raw().execute("UPDATE attempt SET pid = 4194305 WHERE number = 2");
  CHECK(run.listed().status == "lost");
  CHECK(run.stored_status() == "lost");
}

TEST_CASE("an attempt that another process has replaced writes nothing more, and gets an error") {
  LedgerFolder folder;
  Ledger first(folder.home(), Ledger::Mode::write);
  const std::string id = first.begin_run(new_run(folder));
  first.begin_attempt(id, "start");
  first.metrics(id, {{"loss", 1, 1.0}, {"loss", 2, 2.0}});
  first.flush();
  // The host of the first attempt was unreachable for a while, and another process resumed the run.
  folder.raw().execute("UPDATE run SET status = 'lost', ended = 5");
  Ledger second(folder.home(), Ledger::Mode::write);
  second.reopen_run(id, new_run(folder));
  CHECK(second.begin_attempt(id, "resume", 1) == 2);
  const json before = second.show(id);

  std::atomic<bool> answered = false;
  first.metrics(id, {{"loss", 2, 99.0}});
  first.event(id, "sample", {{"step", 2}, {"text", "x"}});
  first.artifact(id, "checkpoint", "checkpoints/step-000002", {{"step", 2}});
  first.annotate(id, "measured", {{"tokens_per_s", 1}});
  first.settle(id, [&] { answered = true; });
  first.flush();
  CHECK(first.taken_up(id));
  CHECK_FALSE(second.taken_up(id));
  CHECK(second.show(id) == before);
  const std::string taken =
      "4: run " + id + " was resumed elsewhere: attempt 2 is process " + std::to_string(::getpid()) + " on ";
  CHECK(error_of([&] { first.heartbeat(id); }).starts_with(taken));
  CHECK(error_of([&] { first.begin_attempt(id, "restart", 1); }).starts_with(taken));
  CHECK(error_of([&] { first.finish_run(id, "failed", 1, "killed"); }).starts_with(taken));
  CHECK(second.show(id) == before);
  second.settle(id, [&] { answered = true; });
  while (!answered) ::usleep(1000);
  second.heartbeat(id);
}

TEST_CASE("a read-only ledger can be read, and its lost runs are shown as lost") {
  OneRun run;
  run.owner("pid = 4194305, started = 1700000000, heartbeat = 1700000000.5");
  run.folder.raw().execute("UPDATE run SET started = 1700000000");
  CHECK(holds_write_protected(run.folder, [&] {
    Ledger ledger(run.folder.home(), Ledger::Mode::read);
    const RunRow row = ledger.runs().at(0);
    return row.status == "lost" && row.ended == 1700000000.5 && ledger.show(run.id)["status"] == "lost";
  }));
  CHECK(run.stored_status() == "running");
}
