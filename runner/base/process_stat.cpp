#include "runner/base/process_stat.hpp"

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

std::string read_proc(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();  // a failure of reading ends it, and is no exception
  return content.str();
}

std::optional<ProcessStat> read_process_stat(int64_t pid) {
  const auto text = read_proc("/proc/" + std::to_string(pid) + "/stat");
  // The second field is the command in parentheses and may contain any character. The others follow the last ')'.
  const size_t command_end = text.rfind(')');
  if (command_end == std::string::npos) return std::nullopt;
  const auto fields = split(std::string_view(text).substr(command_end + 1), ' ');
  constexpr size_t state = 1, parent = 2, start_time = 20;  // fields 3, 4 and 22 of proc(5)
  if (fields.size() <= start_time) return std::nullopt;
  return ProcessStat{.state = fields[state].front(),
                     .parent = std::atoi(fields[parent].c_str()),
                     .start_time = std::strtoll(fields[start_time].c_str(), nullptr, 10)};
}

int64_t peak_resident_bytes() {
  FILE* file = std::fopen("/proc/self/status", "re");
  if (!file) return 0;
  char line[256];
  long kilobytes = 0;
  while (std::fgets(line, sizeof line, file))
    if (std::sscanf(line, "VmHWM: %ld", &kilobytes) == 1) break;
  std::fclose(file);
  return int64_t{kilobytes} * 1024;
}

void tune_malloc() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 512 << 20);
  ::mallopt(M_TOP_PAD, 16 << 20);
}

void return_large_blocks() { ::mallopt(M_MMAP_THRESHOLD, 4 << 20); }

void raise_descriptor_limit(int64_t needed, const std::string& purpose) {
  constexpr rlim_t plenty =
      65536;  // not the hard limit, which may be a billion: some programs close all possible descriptors
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const auto wanted = static_cast<rlim_t>(needed);
  if (limit.rlim_cur >= wanted) return;
  if (limit.rlim_max < wanted)
    throw environment_error(
        "{} needs about {} open files, but a process of this user may open {}: raise the hard limit (ulimit -Hn, "
        "nofile in limits.conf, or LimitNOFILE of a systemd service), or use fewer ranks",
        purpose, needed, limit.rlim_max);
  limit.rlim_cur = std::min(limit.rlim_max, std::max(wanted, plenty));
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    throw environment_error("{} needs about {} open files, and the limit cannot be raised: {}", purpose, needed,
                            std::strerror(errno));
}

}  // namespace runner
