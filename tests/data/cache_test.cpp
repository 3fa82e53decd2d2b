// The cache: the first process makes an entry, and an entry is either complete or absent.
#include "runner/data/cache.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <catch2/catch_test_macros.hpp>

#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;

namespace {

void append(CacheWriter& out, std::string_view text) { out.append(std::as_bytes(std::span(text))); }

/// Starts a child that runs `action` and exits with its result. Returns the child's pid.
template <typename Action>
pid_t start(Action action) {
  pid_t child = ::fork();
  if (child == 0) {
    try {
      action();
    } catch (const std::exception& error) {  // the child must not continue as a test program
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(99);
    }
    ::_exit(0);
  }
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

size_t files_in(const std::string& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("an entry is made once and then found") {
  DataFolder folder;
  std::string cache = folder / "deep/cache";
  int made = 0;
  auto fill = [&](CacheWriter& out) {
    ++made;
    append(out, std::string(3 << 20, 'x'));
    append(out, "end");
  };
  fs::path path = make_once(cache, "thing", fill);
  CHECK(make_once(cache, "thing", fill) == path);
  CHECK(made == 1);
  CHECK(read_file(path) == std::string(3 << 20, 'x') + "end");
  CHECK(files_in(cache) == 1);
}

TEST_CASE("one of many concurrent processes fills an entry, and all of them see the complete entry") {
  DataFolder folder;
  for (int round = 0; round < 5; ++round) {
    std::string cache = folder / ("cache" + std::to_string(round)), witness = folder.write("witness", "");
    std::vector<pid_t> children;
    for (int i = 0; i < 6; ++i)
      children.push_back(start([&] {
        fs::path path = make_once(cache, "thing", [&](CacheWriter& out) {
          std::ofstream(witness, std::ios::app) << "made\n";
          append(out, std::string(2 << 20, 'x'));
          ::usleep(20'000);
          append(out, "end");
        });
        if (read_file(path) != std::string(2 << 20, 'x') + "end") ::_exit(1);
      }));
    for (pid_t child : children) CHECK(wait_for(child) == 0);
    CHECK(read_file(witness) == "made\n");
    CHECK(files_in(cache) == 1);
  }
}

TEST_CASE("an entry of a process killed while filling is not used, and a waiting process fills it again") {
  DataFolder folder;
  std::string cache = folder / "cache";
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  pid_t victim = start([&] {
    make_once(cache, "thing", [&](CacheWriter& out) {
      append(out, std::string(5 << 20, 'x'));
      if (::write(ready[1], "!", 1) != 1) ::_exit(1);
      ::pause();
    });
  });
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  CHECK_FALSE(fs::exists(cache + "/thing"));
  CHECK(fs::file_size(cache + "/thing.tmp") > 0);
  pid_t waiting = start([&] { make_once(cache, "thing", [](CacheWriter& out) { append(out, "whole"); }); });
  ::usleep(50'000);
  ::kill(victim, SIGKILL);
  CHECK(WTERMSIG(wait_for(victim)) == SIGKILL);
  CHECK(wait_for(waiting) == 0);
  CHECK(read_file(cache + "/thing") == "whole");
  CHECK(files_in(cache) == 1);
}

TEST_CASE("the next process removes what a killed process left and starts again") {
  DataFolder folder;
  std::string cache = folder / "cache";
  pid_t victim = start([&] {
    make_once(cache, "thing", [](CacheWriter& out) {
      append(out, std::string(5 << 20, 'x'));
      ::raise(SIGKILL);
    });
  });
  wait_for(victim);
  REQUIRE(fs::exists(cache + "/thing.tmp"));
  CHECK(read_file(make_once(cache, "thing", [](CacheWriter& out) { append(out, "short"); })) == "short");
  CHECK(files_in(cache) == 1);
}

TEST_CASE("a failure while filling leaves nothing, and the next attempt succeeds") {
  DataFolder folder;
  std::string cache = folder / "cache";
  CHECK(error_of([&] {
          make_once(cache, "thing", [](CacheWriter& out) {
            append(out, std::string(5 << 20, 'x'));
            throw usage_error("no");
          });
        }) == "usage: no");
  CHECK(files_in(cache) == 0);
  CHECK(read_file(make_once(cache, "thing", [](CacheWriter& out) { append(out, "yes"); })) == "yes");
}

TEST_CASE("a full disk is an error with path and reason, and leaves nothing") {
  DataFolder folder;
  std::string cache = folder / "cache", found = folder / "found";
  wait_for(start([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::string error =
        error_of([&] { make_once(cache, "thing", [](CacheWriter& out) { append(out, std::string(5 << 20, 'x')); }); });
    std::ofstream(found) << error;
  }));
  CHECK(read_file(found) == "environment: cannot write " + cache + "/thing.tmp: File too large");
  CHECK(files_in(cache) == 0);
}

TEST_CASE("a cache folder that cannot be created is an error with its path") {
  DataFolder folder;
  std::string file = folder.write("file", "x");
  CHECK(error_of([&] { make_once(file + "/cache", "thing", [](CacheWriter&) {}); }) ==
        "environment: cannot create the folder " + file + "/cache: Not a directory");
}
