#include "runner/train/parts/accelerator.hpp"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <mutex>

#include "runner/base/process_stat.hpp"
#include "runner/config/plugged_accelerator.hpp"
#include "runner/cuda/module.hpp"
#include "runner/plugins/given_options.hpp"
#include "runner/train/parts/torch_library.hpp"
#include "strategies/collective/backends.hpp"
#include "strategies/collective/counting_allocator.hpp"
#include "strategies/contract/transfers.hpp"

namespace runner {

namespace {

using nlohmann::json;

const char* const accelerator_key = "plugins.accelerator";

OpenDevices open_cuda() {
  return {.accelerator = cuda_accelerator(), .prepare = [](int device, int) -> PeakMemory {
            const CudaModule& module = use_cuda(device);
            return [&module, device] { return module.peak_memory_bytes(device); };
          }};
}

OpenDevices open_cpu(const std::string& name) {
  return {.accelerator = find_accelerator(name), .prepare = [](int, int ranks) -> PeakMemory {
            static std::once_flag once;
            std::call_once(once, [] {
              tune_malloc();
              install_counting_allocator();
            });
            return [ranks] { return process_account().peak() / ranks; };
          }};
}

/// A library, and what it states.
struct OpenLibrary {
  std::string path;
  plugin::Options options;
  std::unique_ptr<torch_parts::Accelerator> accelerator;
  torch_parts::AcceleratorFacts facts;

  /// Calls a function of the library. Its exceptions become Error(usage) with the function's name.
  template <typename Call>
  auto call(const char* function, const Call& body) const {
    try {
      return body(*accelerator);
    } catch (const std::exception& error) {
      throw usage_error("{}: {}() of {} failed: {}", accelerator_key, function, path, first_line(error.what()));
    }
  }
};

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw usage_error("{}: facts() of {} {}", accelerator_key, path, what);
}

void check_device(const std::string& path, const torch_parts::DeviceFacts& device) {
  if (device.name.empty() || first_invalid_utf8(device.name)) refuse(path, "names a device without UTF-8 text");
  if (device.memory_bytes < 0) refuse(path, fmt::format("states {} bytes of memory", device.memory_bytes));
  const int64_t free = device.free_bytes.value_or(device.memory_bytes);
  if (free < 0 || (device.memory_bytes > 0 && free > device.memory_bytes))
    refuse(path, fmt::format("states {} free bytes of {} bytes of memory", free, device.memory_bytes));
}

/// The device type must be one that this process knows after it has opened the library.
void check_type(const std::string& path, const std::string& type) {
  try {
    const torch::Device device(type);
    if (device.is_cuda()) refuse(path, "states the device type \"cuda\", which the runner has itself");
    if (!device.has_index() && !device.is_cpu() && !device.is_meta()) return;
  } catch (const c10::Error& error) {
    refuse(path, fmt::format("states the device type \"{}\", which LibTorch does not know: {}", type,
                             first_line(error.what_without_backtrace())));
  }
  refuse(path, fmt::format("states the device type \"{}\"; it must be that of an accelerator, without an index", type));
}

OpenLibrary open_library(const std::string& path, const json& options) {
  OpenLibrary opened{
      .path = path, .options = plugin_options(options, "plugins.options"), .accelerator = nullptr, .facts = {}};
  opened.accelerator =
      make_torch_part(path, accelerator_key, "accelerator", &torch_parts::Library::accelerator, opened.options);
  opened.facts = opened.call("facts", [](const auto& accelerator) { return accelerator.facts(); });
  const auto& facts = opened.facts;
  check_type(path, facts.type);
  for (const auto& device : facts.devices) check_device(path, device);
  for (const int64_t bytes : {facts.context_bytes, facts.workspace_bytes, facts.communicator_bytes})
    if (bytes < 0) refuse(path, fmt::format("states {} bytes", bytes));
  const auto& collectives = facts.collectives;
  if (collectives == "gloo" || collectives == "shm" || collectives == "nccl")
    refuse(path, fmt::format("names its collectives \"{}\", which is a backend of the runner", collectives));
  return opened;
}

void register_collectives_of(const OpenLibrary& opened) {
  if (opened.facts.collectives.empty()) return;
  register_collectives(opened.facts.collectives, [&opened](const auto& store, int rank, int size, auto timeout) {
    auto made = opened.call("collectives",
                            [&](auto& accelerator) { return accelerator.collectives(store, rank, size, timeout); });
    if (!made) throw usage_error("{}: collectives() of {} returned null", accelerator_key, opened.path);
    return made;
  });
}

/// The library of this process, which stays open until it ends.
const OpenLibrary& library_of_process(const Recipe& recipe) {
  static const OpenLibrary& library = *[&] {
    auto* opened = new OpenLibrary(open_library(*recipe.plugins.accelerator, recipe.plugins.options));
    set_streams(torch::Device(opened->facts.type).type(), opened->facts.streams);
    register_collectives_of(*opened);
    return opened;
  }();
  return library;
}

/// Tries what facts() states about streams and pinned memory, on the current device of this rank.
void check_abilities(const OpenLibrary& opened, int index) {
  const auto attempt = [&](bool stated, const char* what, const auto& body) {
    if (!stated) return;
    try {
      body();
    } catch (const std::exception& error) {
      refuse(opened.path, fmt::format("states {}, which do not work: {}", what, first_line(error.what())));
    }
  };
  const torch::Device device(torch::Device(opened.facts.type).type(), static_cast<c10::DeviceIndex>(index));
  attempt(opened.facts.streams, "streams", [&] {
    const c10::impl::VirtualGuardImpl guard(device.type());
    c10::Event event(device.type());
    event.record(guard.getStreamFromGlobalPool(device));
    event.synchronize();
  });
  attempt(opened.facts.pinned, "copies from pinned memory", [&] {
    (void)torch::ones({1}, torch::TensorOptions().pinned_memory(true)).to(device, /*non_blocking=*/true);
  });
}

json to_json(const torch_parts::AcceleratorFacts& facts) {
  json devices = json::array();
  for (const auto& device : facts.devices)
    devices.push_back({{"name", device.name},
                       {"memory_bytes", device.memory_bytes},
                       {"free_bytes", device.free_bytes.value_or(device.memory_bytes)},
                       {"bf16", device.bf16}});
  return {{"type", facts.type},
          {"devices", std::move(devices)},
          {"streams", facts.streams},
          {"pinned", facts.pinned},
          {"collectives", facts.collectives},
          {"context_bytes", facts.context_bytes},
          {"workspace_bytes", facts.workspace_bytes},
          {"communicator_bytes", facts.communicator_bytes}};
}

OpenDevices open_plugged(const Recipe& recipe) {
  const OpenLibrary& library = library_of_process(recipe);
  return {.accelerator = plugged_accelerator(to_json(library.facts)),
          .prepare = [&library](int device, int) -> PeakMemory {
            if (std::cmp_greater_equal(device, library.facts.devices.size()))
              throw environment_error("{}: facts() of {} gave device {} before the run, and now gives only {}",
                                      accelerator_key, library.path, device,
                                      counted(std::ssize(library.facts.devices), "device"));
            library.call("set_device", [&](auto& accelerator) { accelerator.set_device(device); });
            check_abilities(library, device);
            return [&library, device] {
              return library.call("peak_memory_bytes",
                                  [&](const auto& accelerator) { return accelerator.peak_memory_bytes(device); });
            };
          }};
}

}  // namespace

OpenDevices open_devices(const Recipe& recipe) {
  if (recipe.plugged_devices()) return open_plugged(recipe);
  return recipe.devices.accelerator == "cuda" ? open_cuda() : open_cpu(recipe.devices.accelerator);
}

json describe_accelerator(const json& request) {
  const OpenLibrary opened = open_library(request.at("plugin"), request.at("options"));
  json stated = to_json(opened.facts);
  stated["asked"] = opened.options.asked();
  return stated;
}

}  // namespace runner
