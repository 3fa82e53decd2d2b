// The host: cores and memory that this process may use, host name, kernel, CPU.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "runner/base/process_stat.hpp"
#include "runner/base/text.hpp"
#include "runner/devices/probes.hpp"

namespace runner {

namespace {

namespace fs = std::filesystem;

/// The value of the first of these variables that is set; empty if none is.
std::string first_of_environment(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name)) return value;
  return "";
}

/// The first number of a text. nullopt for "max", "-1" and texts without a number: all of them mean "no limit".
std::optional<int64_t> number(std::string_view text) {
  text = trim(text);
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  return value;
}

/// The value of "key<separator>value" in a file of such lines.
std::string field(const std::string& text, std::string_view key, char separator) {
  for (const std::string& line : split(text, '\n')) {
    size_t at = line.find(separator);
    if (at != std::string::npos && trim(std::string_view(line).substr(0, at)) == key)
      return std::string(trim(std::string_view(line).substr(at + 1)));
  }
  return "";
}

/// "0-3,8" -> 5.
int count_cpu_list(std::string_view list) {
  int count = 0;
  for (const std::string& range : split(list, ',')) {
    auto bounds = split(range, '-');
    auto first = number(bounds.front()), last = number(bounds.back());
    if (first && last && *last >= *first) count += static_cast<int>(*last - *first + 1);
  }
  return count;
}

/// The lowest limit of the process's cgroups and all their parents.
struct Limits {
  double cores = std::numeric_limits<double>::infinity();
  int64_t memory = std::numeric_limits<int64_t>::max(), memory_free = memory;

  void cpu_quota(std::optional<int64_t> quota, std::optional<int64_t> period) {
    if (quota && period && *quota > 0 && *period > 0) cores = std::min(cores, double(*quota) / double(*period));
  }
  /// Inactive file pages count as free, because the kernel drops them first.
  void memory_use(std::optional<int64_t> limit, std::optional<int64_t> used, std::optional<int64_t> reclaimable) {
    if (!limit) return;
    memory = std::min(memory, *limit);
    memory_free = std::min(memory_free, std::max<int64_t>(0, *limit - used.value_or(0) + reclaimable.value_or(0)));
  }
};

/// Calls `visit` with mount/path and each of its parents up to the mount itself. In a container the path may not exist, because
/// the mount is already the container's cgroup. Then only the mount is visited.
template <typename Visit>
void each_ancestor(const fs::path& mount, const std::string& path, Visit visit) {
  for (fs::path below = fs::path(path).relative_path().lexically_normal(); !below.empty() && below != ".";
       below = below.parent_path())
    if (*below.begin() != "..") visit(mount / below);
  visit(mount);
}

Limits read_cgroups(const fs::path& root) {
  Limits limits;
  const fs::path mount = root / "sys/fs/cgroup";
  for (const std::string& line : split(read_proc(root / "proc/self/cgroup"), '\n')) {
    // "0::/path" is the unified hierarchy, "4:cpu,cpuacct:/path" one of version 1.
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    auto has = [&](const char* name) {
      auto names = split(controllers, ',');
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    if (controllers.empty()) {
      each_ancestor(mount, path, [&](const fs::path& group) {
        auto quota = split(trim(read_proc(group / "cpu.max")), ' ');
        if (quota.size() == 2) limits.cpu_quota(number(quota[0]), number(quota[1]));
        limits.memory_use(number(read_proc(group / "memory.max")), number(read_proc(group / "memory.current")),
                          number(field(read_proc(group / "memory.stat"), "inactive_file", ' ')));
      });
    }
    if (has("cpu")) {
      each_ancestor(mount / controllers, path, [&](const fs::path& group) {
        limits.cpu_quota(number(read_proc(group / "cpu.cfs_quota_us")), number(read_proc(group / "cpu.cfs_period_us")));
      });
    }
    if (has("memory")) {
      each_ancestor(mount / controllers, path, [&](const fs::path& group) {
        limits.memory_use(number(read_proc(group / "memory.limit_in_bytes")),
                          number(read_proc(group / "memory.usage_in_bytes")),
                          number(field(read_proc(group / "memory.stat"), "total_inactive_file", ' ')));
      });
    }
  }
  return limits;
}

}  // namespace

void read_host(const fs::path& root, Facts& facts) {
  const Limits limits = read_cgroups(root);

  if (int allowed = count_cpu_list(field(read_proc(root / "proc/self/status"), "Cpus_allowed_list", ':')))
    facts.cores = allowed;
  // A quota of 2.5 cores counts as 2, because a third busy thread would cause all three to be throttled.
  if (limits.cores < facts.cores) facts.cores = std::max(1, static_cast<int>(limits.cores));

  const std::string memory = read_proc(root / "proc/meminfo");
  facts.memory_bytes = std::min(number(field(memory, "MemTotal", ':')).value_or(0) * 1024, limits.memory);
  facts.memory_free_bytes = std::min(number(field(memory, "MemAvailable", ':')).value_or(0) * 1024, limits.memory_free);

  facts.hostname = trim(read_proc(root / "proc/sys/kernel/hostname"));
  facts.kernel = trim(read_proc(root / "proc/sys/kernel/osrelease"));
  const std::string cpu = read_proc(root / "proc/cpuinfo");
  facts.cpu = field(cpu, "model name", ':');
  const std::vector<std::string> flags = split(field(cpu, "flags", ':'), ' ');
  facts.avx2 = std::find(flags.begin(), flags.end(), "avx2") != flags.end();
  facts.avx512 = std::find(flags.begin(), flags.end(), "avx512f") != flags.end();
  facts.onednn_isa = onednn_isa(flags, first_of_environment({"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}));
}

}  // namespace runner
