// Readings of a machine made of files, of this machine, and of a fake GPU.
#include <unistd.h>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <map>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/devices/system_reader.hpp"

using namespace runner;
using Catch::Approx;

namespace {

struct Proc {
  fs::path root = fs::temp_directory_path() / ("runner-proc-" + std::to_string(::getpid()));
  Proc() { fs::create_directories(root); }
  ~Proc() { fs::remove_all(root); }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    write_file_atomic(root / path, text);
  }
  void cpu(int busy, int idle) { put("stat", fmt::format("cpu  {} 0 0 {} 0 0 0 0 7 7\ncpu0 1 1\n", busy, idle)); }
  void network(int received, int sent) {
    put("net/dev", fmt::format("Inter-|   Receive\n face |bytes\n    lo: 99999 1 0 0 0 0 0 0 99999 1 0 0 0 0 0 0\n"
                               "  eth0:{} 1 0 0 0 0 0 0 {} 1 0 0 0 0 0 0\n",
                               received, sent));
  }
  /// A process with a name that looks like the end of the name field.
  void process(int id, int user, int system, int pages, int read, int written, int start = 500) {
    put(fmt::format("{}/stat", id),
        fmt::format("{} (a) b) S 1 1 1 0 -1 4194304 1 1 1 1 {} {} 0 0 20 0 1 0 {} 99 {} 1\n", id, user, system, start,
                    pages));
    put(fmt::format("{}/io", id), fmt::format("rchar: 1\nwchar: 2\nread_bytes: {}\nwrite_bytes: {}\n", read, written));
  }
};

std::map<std::string, double> as_map(const SystemReading& reading) { return {reading.begin(), reading.end()}; }

}  // namespace

TEST_CASE("the first reading has amounts, later ones have rates since the reading before") {
  Proc proc;
  const auto tick = static_cast<int>(::sysconf(_SC_CLK_TCK));
  const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  proc.put("meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\n");
  proc.cpu(1000, 1000);
  proc.network(5000, 700);
  proc.process(11, 3 * tick, tick, 10, 100, 0);
  proc.process(12, 0, 0, 5, 0, 0);
  SystemReader reader(proc.root, {}, proc.root);
  const auto first = as_map(reader.read({11, 12, 13}, 100));
  CHECK(first.at("memory/used_bytes") == 400 * 1024);
  CHECK(first.at("memory/run_bytes") == 15 * page);
  CHECK(first.at("disk/free_bytes") > 0);
  CHECK(first.size() == 3);

  proc.cpu(1300, 1100);
  proc.network(6000, 900);
  proc.process(11, 9 * tick, tick, 20, 2100, 400);
  fs::remove_all(proc.root / "12");
  const auto second = as_map(reader.read({11, 12, 13}, 104));
  CHECK(second.at("cpu/percent") == Approx(75));
  CHECK(second.at("cpu/run_percent") == Approx(150));
  CHECK(second.at("memory/run_bytes") == 20 * page);
  CHECK(second.at("disk/run_read_bytes_per_s") == Approx(500));
  CHECK(second.at("disk/run_write_bytes_per_s") == Approx(100));
  CHECK(second.at("network/received_bytes_per_s") == Approx(250));
  CHECK(second.at("network/sent_bytes_per_s") == Approx(50));
}

TEST_CASE("a restarted rank is a new process, and rates stay positive") {
  Proc proc;
  const auto tick = static_cast<int>(::sysconf(_SC_CLK_TCK));
  proc.process(11, 1000 * tick, 0, 1, 1 << 30, 0);
  SystemReader reader(proc.root, {}, proc.root);
  reader.read({11}, 0);
  proc.process(12, 2 * tick, 0, 1, 10, 0);
  CHECK(as_map(reader.read({12}, 1)).at("cpu/run_percent") == 0);  // its counters begin now
  proc.process(12, 3 * tick, 0, 1, 30, 0);
  const auto third = as_map(reader.read({12}, 2));
  CHECK(third.at("cpu/run_percent") == Approx(100));
  CHECK(third.at("disk/run_read_bytes_per_s") == Approx(20));
}

TEST_CASE("an id that is given again is another process") {
  Proc proc;
  const auto tick = static_cast<int>(::sysconf(_SC_CLK_TCK));
  proc.process(11, 1000 * tick, 0, 1, 1 << 30, 0);
  SystemReader reader(proc.root, {}, proc.root);
  reader.read({11}, 0);
  proc.process(11, 2 * tick, 0, 1, 10, 0, 900);
  const auto second = as_map(reader.read({11}, 1));
  CHECK(second.at("cpu/run_percent") == 0);
  CHECK(second.at("disk/run_read_bytes_per_s") == 0);
}

TEST_CASE("a machine without these files has no readings but the free disk space") {
  Proc proc;
  SystemReader reader(proc.root, {}, proc.root / "missing");
  reader.read({1}, 0);
  const auto reading = as_map(reader.read({1}, 1));
  CHECK(reading.contains("disk/free_bytes"));
  CHECK_FALSE(reading.contains("cpu/percent"));
  CHECK_FALSE(reading.contains("memory/used_bytes"));
}

TEST_CASE("this process is seen on the real machine") {
  SystemReader reader(".", {});
  reader.read({::getpid()}, steady_seconds());
  const double start = steady_seconds();
  while (steady_seconds() < start + 0.2) {
  }
  const auto reading = as_map(reader.read({::getpid()}, steady_seconds()));
  CHECK(reading.at("cpu/run_percent") > 0);
  CHECK(reading.at("cpu/percent") > 0);
  CHECK(reading.at("memory/run_bytes") > 1 << 20);
}

TEST_CASE("GPUs report utilisation, memory, power, heat, clock and throttling; MIG devices only their memory") {
  Proc proc;
  SystemReader reader(
      proc.root, {{0, "GPU-ab000000-0000-0000-0000-000000000000"}, {1, "MIG-ab000000-0000-0000-0000-000000000001"}},
      proc.root, FAKE_DRIVER);
  const auto reading = as_map(reader.read({}, 0));
  CHECK(reading.at("gpu/0/utilization_percent") == 87);
  CHECK(reading.at("gpu/0/memory_used_bytes") == 750);
  CHECK(reading.at("gpu/0/power_watts") == 312.5);
  CHECK(reading.at("gpu/0/temperature_celsius") == 61);
  CHECK(reading.at("gpu/0/clock_mhz") == 1980);
  CHECK(reading.at("gpu/0/throttled") == 0);
  CHECK(reading.at("gpu/1/memory_used_bytes") == 750);
  CHECK_FALSE(reading.contains("gpu/1/power_watts"));

  ::setenv("FAKE_THROTTLE_REASONS", "1", 1);  // idle is no throttling
  CHECK(as_map(reader.read({}, 1)).at("gpu/0/throttled") == 0);
  ::setenv("FAKE_THROTTLE_REASONS", "64", 1);
  CHECK(as_map(reader.read({}, 2)).at("gpu/0/throttled") == 1);
  ::unsetenv("FAKE_THROTTLE_REASONS");
}

TEST_CASE("without NVML, a GPU has no readings") {
  Proc proc;
  SystemReader reader(proc.root, {{0, "GPU-x"}}, proc.root, "libno-such-nvml.so");
  for (const auto& [name, value] : reader.read({}, 0)) CHECK_FALSE(name.starts_with("gpu/"));
}
