// Lost CPU time: values read from a folder that replaces /proc, and values of this process.
#include "runner/base/contention.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <thread>

#include "runner/base/clock.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using Catch::Approx;

namespace {

struct FakeProc {
  TemporaryFolder folder;
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder.path / name).parent_path());
    std::ofstream(folder.path / name) << text;
  }
};

}  // namespace

TEST_CASE("waiting, pressure and stolen time are read in seconds") {
  FakeProc proc;
  CHECK_FALSE(read_contention(proc.folder.path).waited);
  CHECK_FALSE(read_contention(proc.folder.path).pressed);
  CHECK(read_contention(proc.folder.path).stolen == 0);
  proc.write("self/task/1/schedstat", "5000000000 250000000 12\n");
  proc.write("self/task/2/schedstat", "1 750000000 1\n");
  proc.write("pressure/cpu",
             "some avg10=5.91 avg60=4.16 avg300=1.72 total=10584713\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
  proc.write("stat",
             "cpu  58031 0 11529 37106 622 0 55 400 0 0\ncpu0 1 0 0 0 0 0 0 300\ncpu1 1 0 0 0 0 0 0 100\nintr 5\n");
  const Contention read = read_contention(proc.folder.path);
  CHECK(read.waited == Approx(1.0));
  CHECK(read.pressed == Approx(10.584713));
  CHECK(read.stolen == Approx(2.0));
}

TEST_CASE("lost_share takes waiting, else pressure, else preemptions, and always adds stolen time") {
  const Contention before{.time = 10, .waited = 1, .pressed = 5, .stolen = 2, .preempted = 100};
  Contention after{.time = 20, .waited = 2, .pressed = 10, .stolen = 2, .preempted = 1100};
  CHECK(lost_share(before, after) == Approx(0.1));
  after.stolen = 4;
  CHECK(lost_share(before, after) == Approx(0.3));
  after.waited.reset();
  CHECK(lost_share(before, after) == Approx(0.7));
  after.pressed.reset();
  CHECK(lost_share(before, after) == Approx(0.5));
  after.preempted = 100'000;
  CHECK(lost_share(before, after) == 1);
  CHECK(lost_share(before, before) == 0);
}

TEST_CASE("a process whose threads share too few CPUs waits for them") {
  const Contention before = read_contention();
  if (!before.waited) SKIP("this kernel does not count the waiting time of threads");
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < 3 * std::thread::hardware_concurrency(); ++i)
    threads.emplace_back([end = steady_seconds() + 0.3] {
      while (steady_seconds() < end) {
      }
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(lost_share(before, read_contention()) > 0.3);
}
