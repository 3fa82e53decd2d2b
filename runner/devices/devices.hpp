// Facts of this machine: devices, memory, cores, host. Torch-free: CUDA devices are read through the driver library
// (dlopen of libcuda and libnvidia-ml), and a process of its own asks a plug-in about other devices. Everything else
// receives Facts as a value, so tests can use any machine.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "strategies/collective/accelerator.hpp"

namespace runner {

struct DeviceFacts {
  int index = 0;
  std::string name = "";
  int64_t memory_bytes = 0, free_bytes = 0;
  int major = 0, minor = 0;              ///< compute capability
  int processes = -1;                    ///< compute processes on the device now; -1 if NVML does not report them
  std::string uuid = "";                 ///< "GPU-..." or "MIG-...", as nvidia-smi -L prints it
  std::optional<bool> stated_bf16 = {};  ///< of a plug-in's devices, instead of the compute capability
  int library_index = 0;                 ///< the index of a plug-in's device in its library
  bool bf16() const { return stated_bf16.value_or(major >= 8); }
};

struct Facts {
  std::vector<DeviceFacts> devices;              ///< CUDA devices, or those of plugins.accelerator
  Accelerator accelerator = cuda_accelerator();  ///< what `devices` are
  bool plugged = false;                          ///< they are those of plugins.accelerator
  std::string cuda_problem;  ///< why there is none ("no NVIDIA driver (libcuda.so.1 not found)"), empty if there is
  bool cuda_module = false;  ///< this build has the CUDA module
  int cores = 1;             ///< cores that this process may use (affinity, cgroup quota)
  int64_t memory_bytes = 0;  ///< of the host, or the cgroup's limit if lower
  int64_t memory_free_bytes = 0;
  std::string hostname, kernel, cpu;
  bool avx2 = false, avx512 = false;
  std::string onednn_isa = "";  ///< of which kernels LibTorch computes 16-bit products, as ONEDNN_MAX_CPU_ISA names it
};

/// Reads the facts of this machine. Respects CUDA_VISIBLE_DEVICES. RUNNER_FAKE_FACTS=file.json replaces everything (for
/// tests and for planning).
Facts read_facts();
/// With CUDA devices in "cuda"; a plug-in's are in "devices", with their type in "accelerator".
nlohmann::json to_json(const Facts& facts);
/// Absent keys keep their defaults; an unknown key or a wrong type is Error(usage).
Facts facts_from_json(const nlohmann::json& json);
/// The facts of this machine for a recipe: with plugins.accelerator, the devices are the plug-in's, or those of them that
/// RUNNER_VISIBLE_DEVICES lists ("2,3"). Throws RecipeError if the plug-in cannot be asked, Error(environment) for a wrong
/// list.
Facts facts_for(const Recipe& recipe);
/// The names of the options that the library of plugins.accelerator has; none without it. Nullopt if it is not asked, because the
/// recipe simulates devices. Throws what facts_for() throws.
std::optional<std::set<std::string>> options_of_accelerator(const Recipe& recipe);
/// "2 CUDA devices (0: NVIDIA A100, 80.0 GiB, 79.1 GiB free; 1: ...)", "no CUDA device (why)", or "2 npu devices (...)".
std::string list_devices(const Facts& facts);

/// Which devices a run uses on this node: indices of devices, or a number of CPU ranks.
struct DeviceChoice {
  Accelerator accelerator;
  std::vector<int> device_indices;
  int count = 1;       ///< ranks per node
  std::string reason;  ///< one sentence, for `--explain` and the ledger
};
/// Resolves devices.accelerator and devices.devices against the facts. Throws Error(environment) (asked for more than
/// there is: lists what there is) or Error(usage) (indices on cpu, duplicates, 0 devices).
DeviceChoice choose_devices(const Recipe::Devices& devices, const Facts& facts);

/// For devices.simulate: the devices per node that CPU processes stand for. Throws Error(usage) if the recipe leaves their
/// number to the machine, or if there are more than 1024 on all nodes.
int simulated_devices(const Recipe::Devices& devices);

}  // namespace runner
