// Chooses the devices of a run from the recipe and the facts of the machine. Only `auto` substitutes. Everything else
// is done as written or refused.
#include <algorithm>
#include <numeric>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/device_request.hpp"
#include "runner/devices/devices.hpp"

namespace runner {

namespace {

using Kind = DeviceRequest::Kind;

/// "free:2" uses devices with at least this share of their memory free, or with devices.memory_limit bytes free if that
/// is set. A desktop that uses a few hundred MiB does not make a device busy; another training run does.
constexpr double free_share = 0.8;

std::string describe(const DeviceFacts& device) {
  if (device.memory_bytes == 0) return fmt::format("{}: {}, memory not known", device.index, device.name);
  std::string text = fmt::format("{}: {}, {}, {} free", device.index, device.name, format_bytes(device.memory_bytes),
                                 format_bytes(device.free_bytes));
  if (device.processes > 0) text += fmt::format(", {} process{}", device.processes, device.processes == 1 ? "" : "es");
  return text;
}

std::string write_indices(const std::vector<int>& indices) { return fmt::format("[{}]", fmt::join(indices, ", ")); }

/// The request as the recipe has it, for messages.
std::string write_request(const DeviceRequest& request) {
  const bool listed = request.kind == Kind::indices;
  return "devices = " + (listed ? write_indices(request.indices) : write_devices(request));
}

void check_request(const DeviceRequest& request) {
  if (request.kind == Kind::count || request.kind == Kind::free_count) {
    if (request.count == 0 || request.count < -1)
      throw usage_error("{}: a number of devices is 1 or more, or -1 for all", write_request(request));
  }
  if (request.kind != Kind::indices) return;
  if (request.indices.empty()) throw usage_error("devices = []: name at least one device, or write \"auto\"");
  std::vector<int> sorted = request.indices;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front() < 0) throw usage_error("{}: device indices begin at 0", write_request(request));
  if (auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    throw usage_error("{}: device {} is named twice; each rank needs a device of its own", write_request(request),
                      *twice);
}

/// The lowest-numbered devices without running computations.
std::vector<int> free_devices(const Recipe::Devices& devices, const Facts& facts) {
  std::vector<int> found;
  for (const DeviceFacts& device : facts.devices) {
    int64_t needed =
        devices.memory_limit.value_or(static_cast<int64_t>(free_share * static_cast<double>(device.memory_bytes)));
    if (device.processes <= 0 && device.free_bytes >= needed) found.push_back(device.index);
  }
  int wanted = devices.devices.count;
  if (wanted < 0) wanted = std::max<int>(1, static_cast<int>(found.size()));
  if (static_cast<int>(found.size()) < wanted) {
    const std::string criterion = devices.memory_limit ? format_bytes(*devices.memory_limit) + " (devices.memory_limit)"
                                                       : fmt::format("{:.0f} % of its memory", 100 * free_share);
    throw environment_error(
        "{}: {} free here (free means no compute process and at least {} unused); this machine has {}",
        write_request(devices.devices),
        found.empty() ? "no " + facts.accelerator.noun() + " is"
                      : "only " + write_indices(found) + (found.size() == 1 ? " is" : " are"),
        criterion, list_devices(facts));
  }
  found.resize(wanted);
  return found;
}

DeviceChoice choose_accelerator(const Recipe::Devices& devices, const Facts& facts) {
  const DeviceRequest& request = devices.devices;
  const int available = static_cast<int>(facts.devices.size());
  const std::string noun = facts.accelerator.noun();
  DeviceChoice choice{.accelerator = facts.accelerator, .device_indices = {}, .count = 1, .reason = ""};
  switch (request.kind) {
    case Kind::automatic:
    case Kind::count: {
      int count = request.kind == Kind::automatic || request.count < 0 ? available : request.count;
      if (count > available)
        throw environment_error("{}, but this machine has {}", write_request(request), list_devices(facts));
      choice.device_indices.resize(count);
      std::iota(choice.device_indices.begin(), choice.device_indices.end(), 0);
      choice.reason = count == available ? "all of " + counted(available, noun)
                                         : fmt::format("the first {} of {}", count, counted(available, noun));
      break;
    }
    case Kind::indices:
      for (int index : request.indices)
        if (index >= available)
          throw environment_error("{}: there is no device {}; this machine has {}", write_request(request), index,
                                  list_devices(facts));
      choice.device_indices = request.indices;
      choice.reason = noun + "s named by the recipe: " + write_indices(request.indices);
      break;
    case Kind::free_count:
      choice.device_indices = free_devices(devices, facts);
      choice.reason = noun + "s that nobody computes on: " + write_indices(choice.device_indices);
      break;
  }
  choice.count = static_cast<int>(choice.device_indices.size());
  return choice;
}

/// `chosen`: the recipe requests cpu. Otherwise cpu follows from the machine, and `why` gives the reason.
DeviceChoice choose_cpu(const Recipe::Devices& devices, bool chosen, const std::string& why) {
  const DeviceRequest& request = devices.devices;
  const bool pjrt = devices.accelerator == "tpu";
  if (pjrt && (request.kind != Kind::count || request.count < 1))
    throw usage_error("{}: what devices a PJRT plug-in has is not known before a run; write their number, devices = N",
                      write_request(request));
  if (request.kind == Kind::indices || request.kind == Kind::free_count) {
    if (chosen)
      throw usage_error(
          "{} names CUDA devices, but accelerator = \"cpu\"; write cpu_processes = N for N ranks on the CPU",
          write_request(request));
    throw environment_error("{} names CUDA devices, but {}", write_request(request), why);
  }
  DeviceChoice choice{
      .accelerator = {}, .device_indices = {}, .count = static_cast<int>(devices.cpu_processes), .reason = ""};
  // A recipe for GPUs uses cpu_processes for machines without one. A count that the recipe requests for the CPU itself
  // takes precedence, and so does any count if cpu_processes has its default.
  if (request.kind == Kind::count && request.count > 0 && (chosen || choice.count == 1)) choice.count = request.count;
  if (choice.count < 1) throw usage_error("cpu_processes = {}: it takes at least 1", choice.count);
  choice.reason = pjrt ? counted(choice.count, "device") + " of the PJRT plug-in, as the recipe says"
                       : fmt::format("{} on the CPU{}", counted(choice.count, "rank"), chosen ? "" : ": " + why);
  if (request.kind == Kind::count && request.count > 0 && request.count != choice.count)
    choice.reason +=
        fmt::format("; cpu_processes = {} takes precedence over {} there", choice.count, write_request(request));
  return choice;
}

}  // namespace

int simulated_devices(const Recipe::Devices& devices) {
  const DeviceRequest& request = devices.devices;
  int64_t count = request.kind == Kind::indices ? std::ssize(request.indices) : request.count;
  if (count <= 0 && (devices.accelerator == "cpu" || devices.cpu_processes > 1)) count = devices.cpu_processes;
  if (count <= 0)
    throw usage_error(
        "devices.simulate needs a number of devices, because this machine does not have them: set devices.devices = N");
  constexpr int64_t most = 1024;
  if (count * devices.num_nodes > most)
    throw usage_error("devices.simulate starts one process for each device, and {} of {} are more than {} processes",
                      counted(devices.num_nodes, "node"), counted(count, "device"), most);
  return static_cast<int>(count);
}

std::string list_devices(const Facts& facts) {
  const std::string noun = facts.accelerator.noun();
  if (facts.devices.empty()) return fmt::format("no {} ({})", noun, facts.cuda_problem);
  std::vector<std::string> each;
  for (const DeviceFacts& device : facts.devices) each.push_back(describe(device));
  return fmt::format("{} ({})", counted(std::ssize(each), noun), join(each, "; "));
}

DeviceChoice choose_devices(const Recipe::Devices& devices, const Facts& facts) {
  check_request(devices.devices);
  if (facts.plugged && facts.devices.empty())
    throw environment_error("plugins.accelerator finds no {} on this machine", facts.accelerator.noun());
  if (facts.plugged) return choose_accelerator(devices, facts);
  // The devices of a PJRT plug-in are those of a strategy (strategies/xla), which drives them from the host.
  if (devices.accelerator == "cpu" || devices.accelerator == "tpu") return choose_cpu(devices, true, "");

  std::string obstacle;
  if (facts.devices.empty())
    obstacle = "no CUDA device can be used: " + facts.cuda_problem;
  else if (!facts.cuda_module)
    obstacle = fmt::format(
        "this build of runner has no CUDA module, so it cannot use {}; run scripts/setup --cuda and build again",
        list_devices(facts));
  if (obstacle.empty()) return choose_accelerator(devices, facts);

  RUNNER_CHECK(devices.accelerator == "auto" || devices.accelerator == "cuda", "accelerator {}", devices.accelerator);
  if (devices.accelerator == "auto") return choose_cpu(devices, false, obstacle);
  throw environment_error("accelerator = \"cuda\", but {}", obstacle);
}

}  // namespace runner
