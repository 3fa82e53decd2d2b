// Programs run to their end or to a deadline, and the state of processes.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/capture.hpp"
#include "runner/base/child_process.hpp"
#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log_heading.hpp"
#include "runner/base/process_stat.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace std::chrono_literals;

TEST_CASE("a captured program gives its output and its exit status") {
  const auto shell = [](const std::string& script, bool with_stderr) {
    return capture({"sh", "-c", script}, {.timeout = 10s, .environment = {"GIVEN=yes"}, .with_stderr = with_stderr});
  };
  CHECK(shell("echo $GIVEN; echo no >&2", false).output == "yes\n");
  CHECK(shell("echo $GIVEN; echo no >&2", true).output == "yes\nno\n");
  CHECK(shell("exit 3", false).status == 3);
  CHECK(shell("kill -9 $$", false).status == -1);
}

TEST_CASE("a program is killed at its deadline, and one that does not exist says so") {
  const auto slow = capture({"sleep", "60"}, {.timeout = 20ms});
  CHECK((slow.too_late && slow.status == -1));
  const auto missing = capture({"no-such-program"}, {.timeout = 1s});
  CHECK((!missing.too_late && missing.status == -1));
  CHECK(missing.output == "No such file or directory");
}

TEST_CASE("a program that has closed its output is killed at the deadline, with what it has started") {
  const auto before = std::chrono::steady_clock::now();
  const auto silent = capture({"sh", "-c", "sleep 60 >&- & echo $!; exec >&-; wait"}, {.timeout = 300ms});
  CHECK(std::chrono::steady_clock::now() - before < 30s);
  CHECK(silent.too_late);
  CHECK(silent.status == -1);
  const auto runs = [&] {
    const auto sleeper = read_process_stat(std::stoi(silent.output));
    return sleeper && !sleeper->has_ended();
  };
  for (int i = 0; i < 100 && runs(); ++i) std::this_thread::sleep_for(50ms);
  CHECK_FALSE(runs());
  CHECK(capture({"sh", "-c", "exec >&-; sleep 0.1; exit 3"}, {.timeout = 10s}).status == 3);
}

TEST_CASE("a program blocks no signals, also if this thread does") {
  const BlockedSignals blocked;
  const auto answer = capture({"grep", "SigBlk", "/proc/self/status"}, {.timeout = 10s});
  CHECK(answer.output == "SigBlk:\t0000000000000000\n");
}

TEST_CASE("a program that writes more than is wanted is killed, and so is one that has to stop") {
  const auto endless = capture({"yes"}, {.timeout = 10s, .bytes_max = 100001});
  CHECK(endless.cut);
  CHECK_FALSE(endless.too_late);
  CHECK(endless.output.size() == 100001);
  const auto exact = capture({"printf", "abcd"}, {.timeout = 10s, .bytes_max = 4});
  CHECK_FALSE(exact.cut);
  CHECK(exact.output == "abcd");
  CHECK(exact.status == 0);
  std::stop_source stop;
  stop.request_stop();
  const double started = steady_seconds();
  CHECK(capture({"sleep", "60"}, {.timeout = 60s, .stop = stop.get_token()}).too_late);
  CHECK(steady_seconds() - started < 10);
}

TEST_CASE(
    "the log of a child that writes without end loses its middle, with a note, and keeps its beginning and its end") {
  const TemporaryFolder folder;
  const std::string path = (folder.path / "rank-0.log").string();
  constexpr int64_t most = 4000;
  ChildLog log(path, "---- first ----");
  const Descriptor out = log.take();
  const auto child = start_child(
      {.program = "/bin/sh",
       .arguments = {"-c", "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; sleep 0.3; echo end"},
       .out = out.get(),
       .log = out.get()});
  int64_t largest = 0;
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    log.bound(most);
    largest = std::max(largest, static_cast<int64_t>(fs::file_size(path)));
  }
  log.bound(most);
  const std::string text = read_file(path);
  CHECK(text.starts_with("---- first ----\nline 0\nline 1\n"));
  CHECK(text.ends_with("\nend\n"));
  CHECK(text.size() <= most);
  CHECK(text.find("\n---- runner removed ") != std::string::npos);
  CHECK(text.find(" of output here, because a log has at most 3.91 KiB ----\n") != std::string::npos);
  CHECK(log.tail(1) == "end");

  ChildLog again(path, "---- second ----");
  CHECK(again.tail(3) == "");
  again.bound(int64_t{1} << 20);
  CHECK(read_file(path) == text + "---- second ----\n");
}

TEST_CASE("the heading of an attempt begins a line, and stays when the middle of a log is removed") {
  const TemporaryFolder folder;
  const std::string path = (folder.path / "rank-0.log").string();
  constexpr int64_t most = 4000;
  const std::string first = log_heading("1", "now"), second = log_heading("2", "now"), third = log_heading("3", "now");
  const auto append = [&](const std::string& text) {
    const Descriptor log(::open(path.c_str(), O_WRONLY | O_APPEND));
    REQUIRE(::write(log.get(), text.data(), text.size()) == std::ssize(text));
  };
  const auto lines = [](const std::string& word, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += word + "\n";
    return text;
  };
  ChildLog one(path, first);
  append(lines("one", 200) + "killed within a line");
  ChildLog two(path, second);
  CHECK(read_file(path) == first + "\n" + lines("one", 200) + "killed within a line\n" + second + "\n");
  append("---- runner: attempt x ----\n" + lines("two", 2000));
  two.bound(most);
  std::string text = read_file(path);
  CHECK(text.find(" ----\n" + second + "\n", text.find("---- runner removed ")) != std::string::npos);
  CHECK(text.size() <= most);

  // The lines of attempt 2 that are left at the end still have its heading before them, which a removal before this one wrote.
  ChildLog three(path, third);
  append(lines("three", 5));
  three.bound(1000);
  text = read_file(path);
  const auto note = text.find("---- runner removed "), kept = text.find(second + "\ntwo\n", note);
  CHECK(note != std::string::npos);
  CHECK(kept != std::string::npos);
  CHECK(text.ends_with("two\n" + third + "\n" + lines("three", 5)));
}

TEST_CASE("a file of /proc that cannot be read is empty, and no exception") {
  CHECK(read_proc("/proc/self/comm") != "");
  CHECK(read_proc("/proc/self/no such file") == "");
  CHECK(read_proc("/proc/self") == "");  // opens, and then fails to be read, as that of a process that ends meanwhile
}

TEST_CASE("the state of a process names its parent and its start") {
  const auto self = read_process_stat(::getpid());
  REQUIRE(self);
  CHECK(self->parent == ::getppid());
  CHECK(self->start_time >= read_process_stat(::getppid()).value().start_time);
  CHECK_FALSE(self->has_ended());
  CHECK_FALSE(read_process_stat(0));
}
