// The host probe on simulated machines made of files: affinity, control groups of both versions, memory.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/devices/probes.hpp"

using namespace runner;

namespace {

/// A root folder with the pseudo-files of a machine with 8 usable cores and 1,000 kB of memory, 600 kB of it available.
struct Machine {
  fs::path root = fs::temp_directory_path() / ("runner-host-" + std::to_string(::getpid()));
  Machine() {
    put("proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-5,8,10\n");
    put("proc/meminfo", "MemTotal:        1000 kB\nMemFree:  100 kB\nMemAvailable:     600 kB\n");
    put("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast 9000\nflags\t\t: fpu avx2 avx512f\n\nprocessor\t: 1\n");
    put("proc/sys/kernel/hostname", "box\n");
    put("proc/sys/kernel/osrelease", "6.1.0\n");
  }
  ~Machine() { fs::remove_all(root); }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    write_file_atomic(root / path, text);
  }
  Facts read() {
    Facts facts;
    read_host(root, facts);
    return facts;
  }
};

}  // namespace

TEST_CASE("without control groups, the affinity mask and all memory count") {
  Machine machine;
  Facts facts = machine.read();
  CHECK(facts.cores == 8);
  CHECK(facts.memory_bytes == 1000 * 1024);
  CHECK(facts.memory_free_bytes == 600 * 1024);
  CHECK(facts.hostname == "box");
  CHECK(facts.kernel == "6.1.0");
  CHECK(facts.cpu == "Fast 9000");
  CHECK(facts.avx2);
  CHECK(facts.avx512);
}

TEST_CASE("the lowest limit of all enclosing control groups applies, version 2") {
  Machine machine;
  machine.put("proc/self/cgroup", "0::/slice/job\n");
  machine.put("sys/fs/cgroup/slice/cpu.max", "350000 100000\n");
  machine.put("sys/fs/cgroup/slice/memory.max", "819200\n");
  machine.put("sys/fs/cgroup/slice/memory.current", "700000\n");
  machine.put("sys/fs/cgroup/slice/memory.stat", "anon 400000\ninactive_file 100000\n");
  machine.put("sys/fs/cgroup/slice/job/cpu.max", "max 100000\n");
  machine.put("sys/fs/cgroup/slice/job/memory.max", "max\n");
  Facts facts = machine.read();
  CHECK(facts.cores == 3);
  CHECK(facts.memory_bytes == 819200);
  CHECK(facts.memory_free_bytes == 819200 - 700000 + 100000);
}

TEST_CASE("a container whose root is its control group has the limits of that group") {
  Machine machine;
  machine.put("proc/self/cgroup", "0::/../../outside\n");
  machine.put("sys/fs/cgroup/cpu.max", "50000 100000\n");
  machine.put("sys/fs/cgroup/memory.max", "512000\n");
  machine.put("sys/fs/cgroup/memory.current", "600000\n");
  Facts facts = machine.read();
  CHECK(facts.cores == 1);
  CHECK(facts.memory_bytes == 512000);
  CHECK(facts.memory_free_bytes == 0);
}

TEST_CASE("limits of control groups, version 1") {
  Machine machine;
  machine.put("proc/self/cgroup", "12:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/job\n");
  machine.put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "200000\n");
  machine.put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  machine.put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  machine.put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  machine.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n");
  machine.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "600000\n");
  machine.put("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 50000\n");
  Facts facts = machine.read();
  CHECK(facts.cores == 2);
  CHECK(facts.memory_bytes == 700000);
  CHECK(facts.memory_free_bytes == 150000);
}

TEST_CASE("the probe can read the real machine") {
  Facts facts;
  read_host("/", facts);
  CHECK(facts.cores >= 1);
  CHECK(facts.memory_bytes > 0);
  CHECK(facts.memory_free_bytes > 0);
  CHECK(facts.memory_free_bytes <= facts.memory_bytes);
  CHECK_FALSE(facts.hostname.empty());
}

TEST_CASE("oneDNN's instruction set follows from the CPU's flags, and a limit only lowers it") {
  auto isa = [](const std::string& flags, const std::string& limit = "") { return onednn_isa(split(flags, ' '), limit); };
  const std::string skylake = "fpu avx2 avx512f avx512bw avx512vl avx512dq", zen4 = skylake + " avx512_vnni avx512_bf16",
                    sapphire_rapids = zen4 + " avx_vnni avx512_fp16 amx_tile amx_int8 amx_bf16";
  CHECK(isa("fpu sse4_1").empty());
  CHECK(isa("fpu avx2") == "avx2");
  CHECK(isa("fpu avx2 avx512f") == "avx2");  // Knights Landing
  CHECK(isa(skylake) == "avx512_core");
  CHECK(isa(skylake + " avx512_vnni") == "avx512_core_vnni");
  CHECK(isa(zen4) == "avx512_core_bf16");
  CHECK(isa(sapphire_rapids) == "avx512_core_amx");
  CHECK(isa("avx2 avx_vnni avx_vnni_int8 avx_ne_convert") == "avx2_vnni_2");

  CHECK(isa(zen4, "AVX2") == "avx2");
  CHECK(isa(zen4, "avx512_core") == "avx512_core");
  CHECK(isa(zen4, "AVX512_CORE_AMX") == "avx512_core_bf16");
  CHECK(isa(sapphire_rapids, "AVX10_1_512") == "avx512_core_fp16");
  CHECK(isa(sapphire_rapids, "AVX2_VNNI_2") == "avx2_vnni");
  CHECK(isa(zen4, "SSE41").empty());
  for (const char* nothing : {"ALL", "DEFAULT", "AVX1024"}) CHECK(isa(zen4, nothing) == "avx512_core_bf16");
}
