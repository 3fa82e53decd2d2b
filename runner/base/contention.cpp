#include "runner/base/contention.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "runner/base/clock.hpp"

namespace runner {

namespace {

namespace fs = std::filesystem;

constexpr double nanosecond = 1e-9, microsecond = 1e-6;

/// schedstat has, in nanoseconds, the time on a CPU and the time of waiting for one (Documentation/scheduler/
/// sched-stats.rst of Linux). A thread may end while it is read.
std::optional<double> waited_seconds(const fs::path& proc) {
  std::optional<double> sum;
  std::error_code error;
  for (const auto& task : fs::directory_iterator(proc / "self/task", error)) {
    std::ifstream file(task.path() / "schedstat");
    double ran = 0, waited = 0;
    if (file >> ran >> waited) sum = sum.value_or(0) + waited * nanosecond;
  }
  return sum;
}

/// "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345" (Documentation/accounting/psi.rst), in microseconds.
std::optional<double> pressed_seconds(const fs::path& proc) {
  std::ifstream file(proc / "pressure/cpu");
  std::string line;
  const std::string name = "total=";
  if (!std::getline(file, line) || !line.starts_with("some")) return std::nullopt;
  const size_t at = line.find(name);
  if (at == std::string::npos) return std::nullopt;
  return std::strtod(line.c_str() + at + name.size(), nullptr) * microsecond;
}

/// The eighth number of the line "cpu" is time stolen from all CPUs, in clock ticks (proc_stat(5)).
double stolen_seconds(const fs::path& proc) {
  std::ifstream file(proc / "stat");
  std::string word;
  double ticks = 0;
  file >> word;
  for (int i = 0; i < 8; ++i) file >> ticks;
  if (!file) return 0;
  int cpus = 0;
  while (file >> word) cpus += word.starts_with("cpu") && word.size() > 3;
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK)) / std::max(1, cpus);
}

}  // namespace

Contention read_contention(const fs::path& proc) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {.time = steady_seconds(),
          .waited = waited_seconds(proc),
          .pressed = pressed_seconds(proc),
          .stolen = stolen_seconds(proc),
          .preempted = usage.ru_nivcsw};
}

double lost_share(const Contention& before, const Contention& after) {
  constexpr double time_slice = 3e-3;
  const double elapsed = after.time - before.time;
  if (elapsed <= 0) return 0;
  double waited = static_cast<double>(after.preempted - before.preempted) * time_slice;
  if (before.pressed && after.pressed) waited = *after.pressed - *before.pressed;
  if (before.waited && after.waited) waited = *after.waited - *before.waited;
  return std::clamp((std::max(0.0, waited) + after.stolen - before.stolen) / elapsed, 0.0, 1.0);
}

}  // namespace runner
