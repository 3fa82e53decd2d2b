#include "runner/devices/system_reader.hpp"

#include <unistd.h>

#include <array>
#include <sstream>

#include "runner/base/process_stat.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

namespace fs = std::filesystem;

/// The numbers of lines "NAME: NUMBER [kB]", as in meminfo and PID/io.
std::map<std::string, double> read_fields(const fs::path& file) {
  std::map<std::string, double> fields;
  std::istringstream lines(read_proc(file.string()));
  for (std::string line; std::getline(lines, line);)
    if (const auto colon = line.find(':'); colon != std::string::npos)
      fields[line.substr(0, colon)] = std::strtod(line.c_str() + colon + 1, nullptr);
  return fields;
}

/// Clock ticks of all CPUs, from the first line of stat: {all, idle}. Empty if there is no such line.
std::optional<std::pair<double, double>> cpu_ticks(const fs::path& proc) {
  std::istringstream line(first_line(read_proc((proc / "stat").string())));
  std::string word;
  if (!(line >> word) || word != "cpu") return std::nullopt;
  constexpr size_t counted_kinds = 8;  // user nice system idle iowait irq softirq steal; guest time is in user and nice
  std::array<double, counted_kinds> ticks{};
  double all = 0;
  for (auto& kind : ticks)
    if (line >> kind) all += kind;
  return std::pair(all, ticks[3] + ticks[4]);
}

/// Received and sent bytes of all interfaces but loopback.
std::pair<double, double> network_bytes(const fs::path& proc) {
  double received = 0, sent = 0;
  std::istringstream lines(read_proc((proc / "net/dev").string()));
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || trim(line.substr(0, colon)) == "lo") continue;
    std::istringstream columns(line.substr(colon + 1));
    std::array<double, 9> values{};  // of 16: the first is received bytes, the ninth sent bytes
    for (auto& value : values) columns >> value;
    received += values[0];
    sent += values[8];
  }
  return {received, sent};
}

constexpr const char* run_cpu = "run cpu seconds";
constexpr const char* run_read = "disk/run_read_bytes_per_s";
constexpr const char* run_write = "disk/run_write_bytes_per_s";

}  // namespace

SystemReader::SystemReader(fs::path run_folder, std::vector<WatchedGpu> gpus, fs::path proc, const std::string& nvml)
    : folder_(std::move(run_folder)), proc_(std::move(proc)), gpus_(std::move(gpus)) {
  if (!gpus_.empty()) nvml_.emplace(nvml);
}

void SystemReader::read_machine(Counters& counters, SystemReading& reading) const {
  const auto memory = read_fields(proc_ / "meminfo");
  if (memory.contains("MemTotal") && memory.contains("MemAvailable"))
    reading.emplace_back("memory/used_bytes", (memory.at("MemTotal") - memory.at("MemAvailable")) * 1024);
  std::error_code failed;
  const auto space = fs::space(folder_, failed);
  if (!failed) reading.emplace_back("disk/free_bytes", static_cast<double>(space.available));
  if (const auto ticks = cpu_ticks(proc_)) {
    counters.values["all ticks"] = ticks->first;
    counters.values["idle ticks"] = ticks->second;
  }
  const auto [received, sent] = network_bytes(proc_);
  counters.values["network/received_bytes_per_s"] = received;
  counters.values["network/sent_bytes_per_s"] = sent;
}

void SystemReader::read_processes(const std::vector<int64_t>& processes, Counters& counters, SystemReading& reading) {
  const auto ticks_per_second = static_cast<double>(::sysconf(_SC_CLK_TCK));
  const auto page_bytes = static_cast<double>(::sysconf(_SC_PAGESIZE));
  double resident = 0;
  // The counters of a process that ends would be missing in the sums, so the sums are made of differences.
  std::map<std::string, double> sums = {{run_cpu, 0}, {run_read, 0}, {run_write, 0}};
  std::map<Process, std::map<std::string, double>> now;
  for (const auto process : processes) {
    const fs::path folder = proc_ / std::to_string(process);
    const std::string stat = read_proc((folder / "stat").string());
    const auto end = stat.rfind(')');
    if (end == std::string::npos) continue;
    const auto fields = split(std::string_view(stat).substr(end + 1), ' ');
    constexpr size_t user = 12, system = 13, start = 20, pages = 22;  // fields 14, 15, 22 and 24 of proc(5)
    if (fields.size() <= pages) continue;
    resident += std::strtod(fields[pages].c_str(), nullptr) * page_bytes;
    const Process self(process, fields[start]);
    auto& values = now[self];
    values[run_cpu] =
        (std::strtod(fields[user].c_str(), nullptr) + std::strtod(fields[system].c_str(), nullptr)) / ticks_per_second;
    const auto io = read_fields(folder / "io");
    if (io.contains("read_bytes")) values[run_read] = io.at("read_bytes");
    if (io.contains("write_bytes")) values[run_write] = io.at("write_bytes");
    if (const auto before = processes_before_.find(self); before != processes_before_.end())
      for (const auto& [name, value] : values) sums[name] += value - before->second[name];
  }
  if (!now.empty()) reading.emplace_back("memory/run_bytes", resident);
  for (const auto& [name, sum] : sums) counters.values[name] = sum + (before_ ? before_->values[name] : 0);
  processes_before_ = std::move(now);
}

void SystemReader::read_gpus(SystemReading& reading) const {
  if (!nvml_) return;
  for (const auto& gpu : gpus_) {
    const GpuReading values = nvml_->read(nvml_->device(gpu.uuid));
    const auto add = [&](const char* name, auto value) {
      if (value) reading.emplace_back(fmt::format("gpu/{}/{}", gpu.index, name), static_cast<double>(*value));
    };
    add("utilization_percent", values.utilization_percent);
    add("memory_used_bytes", values.memory_used_bytes);
    add("power_watts", values.power_watts);
    add("temperature_celsius", values.temperature_celsius);
    add("clock_mhz", values.clock_mhz);
    add("throttled", values.throttled);
  }
}

void SystemReader::add_rates(const Counters& counters, SystemReading& reading) const {
  if (!before_ || counters.time <= before_->time) return;
  const double seconds = counters.time - before_->time;
  const auto gained = [&](const std::string& name) {
    const auto now = counters.values.find(name), earlier = before_->values.find(name);
    return now == counters.values.end() || earlier == before_->values.end() ? 0 : now->second - earlier->second;
  };
  if (const double all = gained("all ticks"); all > 0)
    reading.emplace_back("cpu/percent", 100 * (1 - gained("idle ticks") / all));
  if (!processes_before_.empty()) reading.emplace_back("cpu/run_percent", 100 * gained(run_cpu) / seconds);
  for (const char* name : {run_read, run_write, "network/received_bytes_per_s", "network/sent_bytes_per_s"})
    reading.emplace_back(name, gained(name) / seconds);
}

SystemReading SystemReader::read(const std::vector<int64_t>& processes, double now) {
  SystemReading reading;
  Counters counters{.time = now, .values = {}};
  read_machine(counters, reading);
  read_processes(processes, counters, reading);
  add_rates(counters, reading);
  read_gpus(reading);
  before_ = std::move(counters);
  return reading;
}

}  // namespace runner
