// Programs run to their end or to a deadline, and the state of processes.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "runner/base/capture.hpp"
#include "runner/base/process_stat.hpp"

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
