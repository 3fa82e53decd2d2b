// The limit of open files is raised as far as it is needed and allowed. Limits are those of a forked process.
#include "runner/base/process_stat.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>

#include "runner/base/error.hpp"

using namespace runner;

namespace {

/// The soft limit after raising it in a process that begins with these limits, or the error.
std::string raised(rlimit limit, int64_t needed) {
  std::array<int, 2> ends;
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    try {
      raise_descriptor_limit(needed, "rank 0 of 1024");
      ::getrlimit(RLIMIT_NOFILE, &limit);
      said = std::to_string(limit.rlim_cur);
    } catch (const Error& error) {
      said = error.what();
      if (error.code() != ExitCode::environment) said += " (wrong code)";
    }
    [[maybe_unused]] const ssize_t n = ::write(ends[1], said.data(), said.size());
    ::_exit(0);
  }
  ::close(ends[1]);
  std::array<char, 1024> buffer;
  const ssize_t n = ::read(ends[0], buffer.data(), buffer.size());
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return {buffer.data(), static_cast<size_t>(n > 0 ? n : 0)};
}

}  // namespace

TEST_CASE("the limit of open files is raised if it does not suffice") {
  CHECK(raised({64, 512}, 60) == "64");
  CHECK(raised({64, 512}, 100) == "512");
  CHECK(raised({64, 512}, 512) == "512");
}

TEST_CASE("an error names the need, the limit and what to do if the limit of open files cannot be raised so far") {
  CHECK(raised({64, 512}, 4352) ==
        "rank 0 of 1024 needs about 4352 open files, but a process of this user may open 512: raise the hard limit "
        "(ulimit -Hn, nofile in limits.conf, or LimitNOFILE of a systemd service), or use fewer ranks");
}
