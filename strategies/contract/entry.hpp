// What a strategy is, torch-free: its names, its options, what it needs, and what it costs in bytes and traffic.
// The planner predicts with these claims and the parity suite checks them: a wrong claim is a failing test.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "strategies/collective/operation.hpp"
#include "strategies/contract/cpu_products.hpp"
#include "strategies/contract/model_spec.hpp"
#include "strategies/contract/precision.hpp"

namespace runner {

struct Job;

/// What an option needs to do anything.
struct OnlyWith {
  std::string what = "";                            ///< "stage = 3", "CUDA devices"; empty: nothing is needed
  std::function<bool(const Job&)> holds = nullptr;  ///< of a job with the strategy's options
};

struct OptionSpec {
  enum class Type { boolean, integer, number, text, choice, duration, names, table };
  std::string name;
  Type type = Type::boolean;
  nlohmann::json default_value = nullptr;  ///< null: unset
  std::vector<std::string> choices = {};   ///< for choice
  std::optional<double> minimum = {};
  std::string help = "";
  std::string note = "";  ///< said when a recipe sets the option (e.g. why nothing is to do)
  std::optional<double> maximum = {};
  std::map<std::string, std::string> spellings = {};  ///< of choices, in lower case: what each stands for
  OnlyWith only_with = {};                            ///< without it a recipe that sets the option gets a note
};

/// Bytes that a run's hooks keep on one rank: where the rank's parameters are, and in host memory whatever the device.
struct HookBytes {
  int64_t device = 0, host = 0;
};
/// Of a job in which the rank holds so many elements of parameters.
using HookMemory = std::function<HookBytes(const Job& job, int64_t held)>;

/// Everything that needs and costs are computed from.
struct Job {
  const ModelSpec* model = nullptr;
  PrecisionPolicy precision;
  bool cuda = false;
  CpuProducts products;  ///< of a rank that computes on a CPU
  int world_size = 1, local_size = 1, num_nodes = 1;
  int64_t micro_batch_size = 1, accumulation = 1;
  int64_t accumulation_most = 1;  ///< where a schedule changes the factor by epoch: its largest
  int optimizer_states = 2;       ///< tensors of parameter size that the optimizer keeps (Adam 2, momentum 1, SGD 0)
  std::vector<bool> recompute;    ///< one per block: activation checkpointing
  bool host_checkpoints = false;  ///< inputs of recomputed blocks wait in host memory beside the device
  HookMemory hooks = {};          ///< empty: there are none, or they do not say
  nlohmann::json options = nlohmann::json::object();  ///< the strategy's, complete (defaults filled in)

  /// Micro-batches of a step, in the epoch that has the most: what must fit, and what sums must be wide enough for.
  int64_t most_micro_batches() const { return std::max(accumulation, accumulation_most); }
};

/// Bytes of tensors that one rank (the one with the most) holds at the peak of a step, by what they are for.
struct MemoryParts {
  int64_t parameters = 0, gradients = 0, optimizer = 0;  ///< the strategy's own: whole, or this rank's shards
  int64_t gathered = 0;                                  ///< parameters gathered for use
  int64_t communication = 0;   ///< gradients on their way: buckets beside them, casts, unsharded gradients
  int64_t activations = 0;     ///< batches, what blocks keep for backward, and the working set of the block at the peak
  int64_t hooks = 0;           ///< what hooks keep, between steps too
  int64_t held = 0;            ///< not a part: elements of parameters whose optimizer state is the rank's
  bool held_on_host = false;   ///< not a part: they are in host memory beside the device
  int64_t between_steps = 0;   ///< not a part: what stays when a step is over
  int64_t host = 0;            ///< not a part: bytes in host memory beside the device
  bool state_on_disk = false;  ///< not a part: checkpoints read it there instead of copying it in memory first
  int64_t total() const { return parameters + gradients + optimizer + gathered + communication + activations + hooks; }
};

/// What one rank calls in one optimizer step, by kind of collective and size of the group; without the base class' one
/// exchange of control words.
struct Traffic {
  std::string collective;  ///< "all_reduce", "all_gather", "reduce_scatter"
  int64_t calls = 0;
  int64_t payload_bytes = 0;  ///< size of the whole tensor the collective works on, summed over calls
  int64_t wire_bytes = 0;     ///< of that, what this rank sends: ring_bytes of the payload
  int ranks = 1, stride = 1;  ///< of the group: so many ranks, so far apart
};
inline Traffic make_traffic(Collective kind, int ranks, int64_t calls, int64_t payload_bytes, int stride = 1) {
  return {name_of(kind), calls, payload_bytes, ring_bytes(kind, payload_bytes, ranks), ranks, stride};
}

/// What one rank does with host memory beside its device in one optimizer step.
struct HostWork {
  int64_t copied_bytes = 0;  ///< between device and host, in both directions together
  int64_t updated = 0;       ///< elements of parameters that the CPU updates
};

/// An option that is of use only on CUDA devices, among several ranks, or beside another option's value.
inline OnlyWith only_on_cuda() {
  return {"CUDA devices", [](const Job& job) { return job.cuda; }};
}
inline OnlyWith only_among_ranks() {
  return {"several ranks", [](const Job& job) { return job.world_size > 1; }};
}
inline OnlyWith only_with_option(const std::string& option, const nlohmann::json& value) {
  return {option + " = " + value.dump(),
          [option, value](const Job& job) { return job.options.value(option, nlohmann::json()) == value; }};
}

/// Gives each of `names` what it needs.
inline void need(std::vector<OptionSpec>& options, const std::vector<std::string>& names, const OnlyWith& only_with) {
  for (auto& option : options)
    if (std::find(names.begin(), names.end(), option.name) != names.end()) option.only_with = only_with;
}

struct Alias {
  std::string name;
  nlohmann::json preset = nlohmann::json::object();  ///< options the alias stands for
  std::string difference = "";                       ///< what differs from the original of that name; empty: nothing
};

struct Entry {
  std::string name;
  std::string summary;
  std::vector<Alias> aliases;
  std::vector<OptionSpec> options;
  bool distributed = true;       ///< needs no fewer than two ranks to make sense; one is allowed
  std::string unavailable = "";  ///< not built yet: why, and what to take instead; then the functions are empty
  /// The unmet need, with the nearest thing that works; nullopt when the job can run.
  std::function<std::optional<std::string>(const Job&)> refuse = {};
  /// What is worth saying of a job that can run: an option with nothing to do here, traffic that another choice would
  /// save.
  std::function<std::vector<std::string>(const Job&)> notes = {};
  std::function<MemoryParts(const Job&)> memory = {};  ///< of the strategy; claimed_memory() has hooks', too
  std::function<std::vector<Traffic>(const Job&)> traffic = {};
  std::function<HostWork(const Job&)> host_work = {};  ///< empty: none
};

}  // namespace runner
