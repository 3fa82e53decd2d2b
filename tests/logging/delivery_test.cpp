// Notifications: retries, warnings, and what commands and servers get.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <cstdlib>
#include <mutex>

#include "runner/base/text.hpp"
#include "runner/logging/notifier.hpp"
#include "tests/logging/logged_run.hpp"
#include "tests/report/capture.hpp"
#include "tests/support/wait_until.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
using runner::testing::LoggedRun;
using runner::testing::wait_until;

namespace {

constexpr Retries fast{.tries = 3, .first_pause = std::chrono::milliseconds(1)};

std::chrono::steady_clock::time_point seconds_from_now(int seconds) {
  return std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
}

std::vector<json> lines_in(const fs::path& file) {
  std::vector<json> lines;
  for (const auto& line : split(read_file(file), '\n'))
    if (!line.empty()) lines.push_back(json::parse(line));
  return lines;
}

}  // namespace

TEST_CASE("a delivery is tried again, in order, and given up after the last try") {
  std::mutex mutex;
  std::vector<std::string> sent;
  int failures = 2;
  Delivery delivery(
      "a place",
      [&](const std::string& message) -> Delivery::Result {
        std::lock_guard lock(mutex);
        if (message == "never") return {.problem = "it is refused"};
        if (message == "first" && failures-- > 0) return {.problem = "it is down", .again = true};
        sent.push_back(message);
        return {};
      },
      [] {}, fast);
  for (const char* message : {"first", "never", "second"}) delivery.add(message);
  delivery.finish({.deadline = seconds_from_now(10)});
  CHECK(sent == std::vector<std::string>{"first", "second"});
}

TEST_CASE("an exception while a message is sent is a failed try") {
  int tries = 0;
  Delivery delivery(
      "a place",
      [&](const std::string&) -> Delivery::Result {
        if (++tries == 1) throw std::runtime_error("no more processes");
        return {};
      },
      [] {}, fast);
  delivery.add("message");
  delivery.finish({.deadline = seconds_from_now(10)});
  CHECK(tries == 2);
}

TEST_CASE("what cannot be delivered in time is given up") {
  Delivery delivery(
      "a place", [](const std::string&) -> Delivery::Result { return {.problem = "it is down", .again = true}; }, [] {},
      {.tries = 5, .first_pause = std::chrono::seconds(60)});
  delivery.add("message");
  const auto begun = std::chrono::steady_clock::now();
  Capture log(2);
  delivery.finish({.deadline = begun + std::chrono::milliseconds(50)});
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(10));
  CHECK(log.text() == "warning: 1 notification could not be delivered to a place in time\n");
}

TEST_CASE("a wait of more than a second says what it waits for, and a signal ends it") {
  Delivery delivery(
      "a place", [](const std::string&) -> Delivery::Result { return {.problem = "it is down", .again = true}; }, [] {},
      {.tries = 5, .first_pause = std::chrono::seconds(60)});
  delivery.add("message");
  const auto begun = std::chrono::steady_clock::now();
  Capture log(2);
  delivery.finish({.deadline = seconds_from_now(60),
                   .stop = [&] { return std::chrono::steady_clock::now() - begun > std::chrono::milliseconds(1500); }});
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(10));
  CHECK(log.text() ==
        "waiting for 1 notification to be delivered to a place (Ctrl-C ends the wait)\n"
        "warning: 1 notification could not be delivered to a place in time\n");
}

TEST_CASE("expectation 38: a command reads what has happened, and a variable's value is in no record") {
  LoggedRun logged;
  const auto file = logged.folder.path / "said";
  ::setenv("RUNNER_TEST_TARGET", file.c_str(), 1);
  Notifier notifier({{.on = {"end", "failure", "alert"}, .command = "cat >>${env:RUNNER_TEST_TARGET}", .webhook = {}},
                     {.on = {"failure"}, .command = "cat >>" + file.string(), .webhook = {}}},
                    logged.ledger, logged.run, logged.folder.path, fast);
  notifier.begin(logged.attempt());
  notifier.points(logged.group({{"loss", 4, 1.5}, {"lr", 4, 0.1}}));
  notifier.event("loss_spike", {{"step", 4}, {"message", "the loss is high"}});
  notifier.event("note", {{"message", "no alert"}});
  notifier.end({.outcome = {.code = ExitCode::done, .status = "finished", .first_cause = ""}});
  const auto lines = lines_in(file);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["kind"] == "alert");
  CHECK(lines[0]["event"] == json{{"event", "loss_spike"}, {"step", 4}, {"message", "the loss is high"}});
  CHECK(lines[0]["text"] == "logged (" + logged.run + "): loss_spike: the loss is high");
  CHECK(lines[1]["kind"] == "end");
  CHECK(lines[1]["schema"] == 1);
  CHECK(lines[1]["run"] == logged.run);
  CHECK(lines[1]["status"] == "finished");
  CHECK(lines[1]["steps"] == 4);
  CHECK(lines[1]["metrics"] == json{{"loss", 1.5}});
  CHECK(lines[1]["text"] == "logged (" + logged.run + "): finished after 4 steps: loss 1.5000");
  CHECK(lines[1]["content"] == lines[1]["text"]);
}

TEST_CASE("a failed run is a failure for those who want it, and an end for the others") {
  LoggedRun logged;
  const auto file = logged.folder.path / "said";
  const auto command = "cat >>" + file.string();
  Notifier notifier({{.on = {"failure"}, .command = command, .webhook = {}}}, logged.ledger, logged.run,
                    logged.folder.path, fast);
  notifier.begin(logged.attempt());
  notifier.end({.outcome = {.code = ExitCode::run_failed, .status = "failed", .first_cause = "rank 1 died"},
                .message = "rank 1 died\nmore"});
  Notifier other({{.on = {"end"}, .command = command, .webhook = {}}}, logged.ledger, logged.run, logged.folder.path,
                 fast);
  other.begin(logged.attempt());
  other.end({.outcome = {.code = ExitCode::run_failed, .status = "failed", .first_cause = "rank 1 died"},
             .message = "rank 1 died"});
  Notifier silent({{.on = {"alert"}, .command = command, .webhook = {}}}, logged.ledger, logged.run, logged.folder.path,
                  fast);
  silent.begin(logged.attempt());
  silent.end({.outcome = {.code = ExitCode::run_failed, .status = "failed", .first_cause = "rank 1 died"}});
  const auto lines = lines_in(file);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["kind"] == "failure");
  CHECK(lines[0]["message"] == "rank 1 died\nmore");
  CHECK(lines[0]["text"] == "logged (" + logged.run + "): failed after 0 steps (rank 1 died)");
  CHECK(lines[1]["kind"] == "end");
}

TEST_CASE("a command that fails, and a server that is not there, are given up with a warning") {
  LoggedRun logged;
  const auto file = logged.folder.path / "tries";
  Notifier notifier(
      {{.on = {"end"}, .command = "echo x >>" + file.string() + "; echo no such user; exit 3", .webhook = {}},
       {.on = {"end"}, .command = {}, .webhook = "http://127.0.0.1:1/secret"},
       {.on = {"end"}, .command = "no-such-program --auth-token=abc123", .webhook = {}}},
      logged.ledger, logged.run, logged.folder.path, fast);
  Capture log(2);
  notifier.begin(logged.attempt());
  notifier.end({.outcome = {.code = ExitCode::done, .status = "finished", .first_cause = ""}});
  const std::string text = log.text();
  CHECK(read_file(file) == "x\nx\nx\n");
  CHECK_THAT(text,
             ContainsSubstring("warning: a notification could not be delivered to the command `echo x >>" +
                               file.string() + "; echo no such user; exit 3` (3 tries): exit code 3: no such user\n"));
  CHECK_THAT(text, ContainsSubstring("warning: a notification could not be delivered to the webhook at "
                                     "http://127.0.0.1:1 (3 tries): "));
  CHECK_THAT(text, ContainsSubstring("to the command `no-such-program --auth-token=***` (1 try): exit code 127: "));
  logged.ledger.flush();
  const json events = logged.ledger.show(logged.run).at("events");
  REQUIRE(events.size() == 3);
  for (const auto& event : events) {
    CHECK(event.at("event") == "undelivered");
    CHECK_THAT(text, ContainsSubstring("warning: " + event.at("message").get<std::string>() + "\n"));
  }
}

TEST_CASE("a command may write without end, and one whose exit code is not known is no success") {
  LoggedRun logged;
  const Outcome finished{.code = ExitCode::done, .status = "finished", .first_cause = ""};
  const RunEnd end{.outcome = finished};
  Capture log(2);
  // The output is no file, which could grow without end.
  const std::string command =
      "head -c 50000000 /dev/zero | tr '\\0' x; echo; stat -Lc %F /proc/$$/fd/1; echo all; exit 3";
  Notifier({{.on = {"end"}, .command = command, .webhook = {}}}, logged.ledger, logged.run, logged.folder.path,
           {.tries = 1})
      .end(end);
  ::signal(SIGCHLD, SIG_IGN);
  Notifier({{.on = {"end"}, .command = "exit 3", .webhook = {}}}, logged.ledger, logged.run, logged.folder.path, fast)
      .end(end);
  ::signal(SIGCHLD, SIG_DFL);
  const std::string text = log.text();
  CHECK_THAT(text, ContainsSubstring("(1 try): exit code 3: "));
  CHECK_THAT(text, ContainsSubstring("x\nfifo\nall\n"));
  CHECK_THAT(text,
             ContainsSubstring("to the command `exit 3` (1 try): its exit code is not known: No child processes\n"));
}

TEST_CASE("a run that fails before its first attempt is told, and a renamed one has its new name") {
  LoggedRun logged;
  const auto file = logged.folder.path / "said";
  Notifier notifier({{.on = {"failure"}, .command = "cat >>" + file.string(), .webhook = {}}}, logged.ledger,
                    logged.run, logged.folder.path, fast);
  logged.ledger.edit({logged.run}, {.name = "renamed"});
  notifier.end({.outcome = {.code = ExitCode::run_failed, .status = "failed", .first_cause = ""},
                .message = "plan.json is a folder"});
  const auto lines = lines_in(file);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0]["text"] == "renamed (" + logged.run + "): failed after 0 steps (plan.json is a folder)");
  CHECK(lines[0]["name"] == "renamed");
  CHECK(lines[0]["folder"] == logged.folder.path.string());
}

TEST_CASE("the value of a variable is no text for the shell, whatever quotes are around it") {
  LoggedRun logged;
  const auto file = logged.folder.path / "said";
  const std::string value = "it's \"5\" $HOME; `false` \\ *";
  const Variable variable("RUNNER_TEST_TARGET", value);
  const std::string command =
      "printf '%s\\n' ${env:RUNNER_TEST_TARGET} \"a ${env:RUNNER_TEST_TARGET}\" 'b "
      "${env:RUNNER_TEST_TARGET}' ${env:RUNNER_TEST_NONE:-none} >>" +
      file.string();
  Notifier notifier({{.on = {"end"}, .command = command, .webhook = {}}}, logged.ledger, logged.run, logged.folder.path,
                    fast);
  notifier.end({.outcome = {.code = ExitCode::done, .status = "finished", .first_cause = ""}});
  CHECK(read_file(file) == value + "\na " + value + "\nb " + value + "\nnone\n");
}

TEST_CASE("trials notify only targets that want them, and a sweep notifies once") {
  using Notify = Recipe::Logging::Notify;
  const Notify ends{.on = {"end"}, .command = "a", .webhook = {}},
      trials{.on = {"failure", "trial"}, .command = "b", .webhook = {}};
  const auto kept = of_trials({ends, trials});
  REQUIRE(kept.size() == 1);
  CHECK(kept[0].command == "b");
  CHECK(of_trials({Notify{.command = "c", .webhook = {}}}).empty());  // by default, trials are silent

  const TemporaryFolder folder;
  const auto said = folder.path / "said";
  SweepEnd end{.sweep = "20260101-000000-abcd",
               .name = "lr",
               .folder = "sweeps/x",
               .status = "finished",
               .message = "",
               .counts = {{"finished", 2}, {"failed", 1}, {"pruned", 0}},
               .best = {{"trial", 1}, {"run", "r"}, {"metric", "val_loss"}, {"value", 0.25}}};
  const std::vector<Notify> targets = {{.on = {"end", "failure"}, .command = "cat >>" + said.string(), .webhook = {}},
                                       {.on = {"alert"}, .command = "cat >>" + said.string(), .webhook = {}}};
  notify_sweep(targets, end, fast);
  end.failed = true;
  end.best = nullptr;
  notify_sweep(targets, end, fast);
  const auto lines = lines_in(said);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["kind"] == "end");
  CHECK(lines[0]["sweep"] == "20260101-000000-abcd");
  CHECK(lines[0]["trials"]["failed"] == 1);
  CHECK(lines[0]["best"]["value"] == 0.25);
  CHECK(lines[0]["text"] ==
        "sweep lr (20260101-000000-abcd): finished: 1 failed, 2 finished; best val_loss 0.2500, trial 1");
  CHECK(lines[1]["kind"] == "failure");
  CHECK(lines[1]["best"].is_null());
}
