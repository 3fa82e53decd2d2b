// The description of a strategy: names, options, requirements, and its cost in memory and traffic. This header is
// torch-free. The planner predicts with these functions, and tests compare them with measured bytes and recorded
// collectives.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/glob.hpp"
#include "runner/base/option.hpp"
#include "strategies/collective/accelerator.hpp"
#include "strategies/collective/operation.hpp"
#include "strategies/contract/model_spec.hpp"
#include "strategies/contract/precision.hpp"
#include "strategies/mesh/mesh.hpp"
#include "strategies/optimizer/optimizer_spec.hpp"
#include "strategies/pipeline/schedule.hpp"

namespace runner {

/// `recompute`: one per block. The first block of the model has no input to keep, so it is never recomputed. Neither are blocks without
/// a backward.
inline bool is_recomputed(const ModelSpec& model, const std::vector<bool>& recompute, size_t block) {
  return model.has_input(block) && block < recompute.size() && recompute[block] && block >= model.first_trained_block();
}
/// Whether the block is recomputed together with the block before it: both are recomputed and belong to one layer.
inline bool joins_recomputation(const ModelSpec& model, const std::vector<bool>& recompute, size_t block) {
  return model.continues_layer(block) && is_recomputed(model, recompute, block) &&
         is_recomputed(model, recompute, block - 1);
}
/// Whether the block is the first of those that are recomputed together. Only its input is kept.
inline bool begins_recomputation(const ModelSpec& model, const std::vector<bool>& recompute, size_t block) {
  return is_recomputed(model, recompute, block) && !joins_recomputation(model, recompute, block);
}

struct Job;
struct ParallelPlan;  // program/parallel_plan.hpp

/// The condition under which an option has an effect.
struct OnlyWith {
  std::string what = "";                            ///< "stage = 3", "several ranks"; empty: no condition
  std::function<bool(const Job&)> holds = nullptr;  ///< tests the condition; the job contains the strategy's options
};

/// An option of [strategy].
struct StrategyOption : Option {
  OnlyWith only_with = {};  ///< a recipe that sets the option gets a note otherwise
};

/// Bytes that a run's hooks keep on one rank. `device`: in the memory where the optimizer state is (device, or host
/// with offload). `host`: always in host memory.
struct HookBytes {
  int64_t device = 0, host = 0;
};
struct MemoryParts;
/// `parts`: of the strategy, for the elements that the rank has.
using HookMemory = std::function<HookBytes(const Job& job, const MemoryParts& parts)>;

/// An optimizer, and what its memory and work depend on.
struct OptimizerUse {
  const OptimizerSpec* spec = nullptr;
  int states = 2;        ///< kinds of state tensors that it keeps (Adam 2, momentum 1, SGD 0)
  int64_t ns_steps = 5;  ///< iterations of muon
  bool needs_matrix(const ParameterSpec& parameter) const {
    return spec->needs_matrix && spec->needs_matrix(parameter.shape, parameter.of_layer);
  }
};

/// A run as strategies describe it. Requirements and costs are computed from this.
struct Job {
  /// The model of the rank of the tensor axis with the largest part (its first one), so that all ranks make the same plan.
  const ModelSpec* model = nullptr;
  PrecisionPolicy precision;
  Accelerator accelerator;
  Mesh mesh = {};               ///< all ranks of the run; a plan splits the axis `data`
  PipelineShape pipeline = {};  ///< of the pipeline axis, without the number of micro-batches
  int local_size = 1, num_nodes = 1;
  int64_t micro_batch_size = 1, accumulation = 1;
  int64_t accumulation_most = 1;  ///< the largest factor, if a schedule changes it by epoch
  const OptimizerSpec* optimizer = &optimizers().front();
  int optimizer_states = 2;  ///< OptimizerUse::states of it
  int64_t ns_steps = 5;
  /// The optimizers of groups of parameters. By pattern, the number of a parameter's optimizer: n for group_optimizers[n - 1], 0 for
  /// `optimizer`. The first pattern that matches applies.
  std::vector<OptimizerUse> group_optimizers = {};
  std::vector<std::pair<std::string, size_t>> optimizer_patterns = {};
  bool adascale = false;           ///< optimizer.adascale
  bool validates = false;          ///< the run validates, or its hooks use the model, between steps
  std::vector<bool> recompute;     ///< one per block: activation checkpointing
  bool host_checkpoints = false;   ///< inputs of recomputed blocks are kept in host memory (host_checkpoints.hpp)
  HookMemory hooks = {};           ///< empty: there are no hooks, or their memory is unknown
  bool own_loss = false;           ///< a hook computes the loss from a copy of the logits
  bool hooks_in_backward = false;  ///< hooks are called before or after the backward of each micro-batch
  nlohmann::json options = nlohmann::json::object();  ///< options of the strategy, with defaults filled in
  /// For each parameter of the model the number of its unit, from 0 (Lua's function `units`). Empty: the strategy makes its own units.
  std::vector<size_t> unit_of_parameter = {};

  size_t optimizer_count() const { return 1 + group_optimizers.size(); }
  OptimizerUse optimizer_at(size_t number) const {
    return number > 0 ? group_optimizers[number - 1]
                      : OptimizerUse{.spec = optimizer, .states = optimizer_states, .ns_steps = ns_steps};
  }
  /// The number of the parameter's optimizer.
  size_t optimizer_of(const ParameterSpec& parameter) const;
  /// The number of the first optimizer of the run for which `has` is true.
  template <typename Has>
  std::optional<size_t> optimizer_that(Has&& has) const {
    for (size_t number = 0; number < optimizer_count(); ++number)
      if (has(*optimizer_at(number).spec)) return number;
    return std::nullopt;
  }
  /// The most kinds of state tensors that an optimizer of the run keeps.
  int most_states() const;
  /// The mean of OptimizerSpec::passes over the trained elements.
  double update_passes() const;
  /// Bytes of these states for `elements` elements of the parameter.
  int64_t state_bytes(const ParameterSpec& parameter, int64_t elements, int64_t master_bytes) const;
  /// Bytes of all parameters, and of the states of those that are trained.
  int64_t training_state_bytes(int64_t master_bytes) const;
  int world_size() const { return mesh.ranks(); }       ///< all ranks of the run
  int data_ranks() const { return mesh.data_ranks(); }  ///< ranks that read different data
  /// Ranks with the same part of the model, over which gradients are summed and state can be sharded: of each sequence of data, also those
  /// that have other tokens.
  int sharing_ranks() const { return data_ranks() * mesh.size(Axis::context); }
  /// Micro-batches of a step in the epoch that has the most. Decides peak memory, and the dtype of accumulated
  /// gradients.
  int64_t most_micro_batches() const { return std::max(accumulation, accumulation_most); }
  bool recomputes(size_t block) const { return is_recomputed(*model, recompute, block); }
  bool begins_recomputation(size_t block) const { return runner::begins_recomputation(*model, recompute, block); }
};

inline size_t Job::optimizer_of(const ParameterSpec& parameter) const {
  if (group_optimizers.empty()) return 0;
  for (const auto& [pattern, number] : optimizer_patterns)
    if (glob_matches(pattern, parameter.name)) return number;
  return 0;
}
inline int Job::most_states() const {
  int most = optimizer_states;
  for (const auto& use : group_optimizers) most = std::max(most, use.states);
  return most;
}
inline double Job::update_passes() const {
  if (group_optimizers.empty()) return optimizer->passes;
  double passes = 0, elements = 0;
  for (const auto* parameter : model->parameters()) {
    if (!parameter->trainable) continue;
    passes += static_cast<double>(parameter->numel()) * optimizer_at(optimizer_of(*parameter)).spec->passes;
    elements += static_cast<double>(parameter->numel());
  }
  return elements > 0 ? passes / elements : optimizer->passes;
}
inline int64_t Job::state_bytes(const ParameterSpec& parameter, int64_t elements, int64_t master_bytes) const {
  const auto use = optimizer_at(optimizer_of(parameter));
  const bool kept = !use.spec->states_need_momentum || use.states > 0;
  if (kept && !use.spec->states_of) return std::ssize(use.spec->states) * elements * master_bytes;
  int64_t bytes = 0;
  for (const auto& state : use.spec->states_for(parameter.shape, parameter.of_layer, kept))
    bytes += state.values(elements, parameter.shape) * state.bytes_each(master_bytes);
  return bytes;
}
inline int64_t Job::training_state_bytes(int64_t master_bytes) const {
  int64_t bytes = 0;
  for (const auto& block : model->blocks)
    for (const auto& parameter : block.parameters) {
      bytes += parameter.numel() * master_bytes;
      if (parameter.trainable) bytes += state_bytes(parameter, parameter.numel(), master_bytes);
    }
  return bytes;
}

/// Bytes of tensors in device memory at the peak of a step, by purpose, on the rank that needs most. On CPU, device
/// memory is host memory. Fields marked "not in total" are additional figures.
struct MemoryParts {
  int64_t parameters = 0, gradients = 0, optimizer = 0;  ///< of the strategy: replicated, or this rank's shards
  int64_t gathered = 0;                                  ///< parameters gathered for use
  int64_t communication = 0;   ///< buckets that copy gradients, casts, unsharded gradients before their reduction
  int64_t activations = 0;     ///< batches, tensors saved for backward, and the working set of the block at the peak
  int64_t hooks = 0;           ///< kept by hooks, also between steps
  int64_t workspaces = 0;      ///< Accelerator::workspace_bytes
  int64_t held = 0;            ///< not in total: parameter elements whose optimizer state this rank has
  int64_t stored = 0;          ///< not in total: the same, and the elements of frozen parameters that this rank stores
  bool held_on_host = false;   ///< these elements are in host memory, outside the device
  int64_t between_steps = 0;   ///< not in total: bytes that remain after a step
  int64_t host = 0;            ///< not in total: bytes in host memory outside the device
  bool state_on_disk = false;  ///< checkpoints read the state from disk instead of copying it in memory first
  int64_t total() const;
};
/// The parts that are in the total.
struct MemoryPart {
  const char* key;    ///< in JSON
  const char* label;  ///< in texts
  int64_t MemoryParts::*bytes;
};
constexpr MemoryPart memory_parts[] = {
    {.key = "parameters", .label = "parameters", .bytes = &MemoryParts::parameters},
    {.key = "gradients", .label = "gradients", .bytes = &MemoryParts::gradients},
    {.key = "optimizer", .label = "optimizer state", .bytes = &MemoryParts::optimizer},
    {.key = "gathered", .label = "gathered parameters", .bytes = &MemoryParts::gathered},
    {.key = "communication", .label = "unreduced gradients", .bytes = &MemoryParts::communication},
    {.key = "activations", .label = "activations", .bytes = &MemoryParts::activations},
    {.key = "hooks", .label = "hook data", .bytes = &MemoryParts::hooks},
    {.key = "workspaces", .label = "workspaces of matrix products", .bytes = &MemoryParts::workspaces},
};
inline int64_t MemoryParts::total() const {
  int64_t sum = 0;
  for (const auto& part : memory_parts) sum += this->*part.bytes;
  return sum;
}

/// The collectives that one rank calls in one optimizer step, of one kind and one group. The exchange of control
/// words in the base class is not included.
struct Traffic {
  std::string collective;  ///< name_of() its kind: "all_reduce", "transfer"
  int64_t calls = 0;
  int64_t payload_bytes = 0;  ///< size of the unsharded tensor of the collective, summed over calls
  int64_t wire_bytes = 0;     ///< bytes that this rank sends: ring_bytes() of the payload
  int ranks = 1, stride = 1;  ///< of the group: number of ranks, and the distance between consecutive ones
  Axis axis = Axis::data;     ///< of the group: tensor, context, data (also replicate and shard) or pipeline
};
inline Traffic make_traffic(Collective kind, int ranks, int64_t calls, int64_t payload_bytes, int stride = 1,
                            Axis axis = Axis::data) {
  return {.collective = name_of(kind),
          .calls = calls,
          .payload_bytes = payload_bytes,
          .wire_bytes = ring_bytes(kind, payload_bytes, ranks),
          .ranks = ranks,
          .stride = stride,
          .axis = axis};
}

/// Work of one rank in host memory in one optimizer step, if the strategy offloads.
struct HostWork {
  int64_t copied_bytes = 0;  ///< between device and host, sum of both directions
  int64_t updated = 0;       ///< parameter elements that the CPU updates
};

/// Conditions for options: what a device can do, or several ranks.
inline OnlyWith only_with_streams() {
  return {"devices that have streams (CUDA)", [](const Job& job) { return job.accelerator.streams; }};
}
inline OnlyWith only_with_pinned_memory() {
  return {"devices that copy from pinned memory (CUDA)", [](const Job& job) { return job.accelerator.pinned; }};
}
inline OnlyWith only_among_ranks() {
  return {"several ranks", [](const Job& job) { return job.world_size() > 1; }};
}

/// The options of [strategy] in `options`, without conditions.
inline std::vector<StrategyOption> strategy_options(const std::vector<Option>& options) {
  return {options.begin(), options.end()};
}
/// Sets the condition of the options `names`.
inline void need(std::vector<StrategyOption>& options, const std::vector<std::string>& names,
                 const OnlyWith& only_with) {
  for (auto& option : options)
    if (std::find(names.begin(), names.end(), option.name) != names.end()) option.only_with = only_with;
}

struct Alias {
  std::string name;
  nlohmann::json preset = nlohmann::json::object();  ///< options that the alias sets
  std::string difference = "";                       ///< to the strategy of that name in another system; empty: none
};

struct Entry {
  std::string name;
  std::string summary;
  std::vector<Alias> aliases = {};
  std::vector<StrategyOption> options = {};
  /// Options with which gradients of several micro-batches are reduced once a step instead of after each; null: none.
  nlohmann::json reduced_once = nullptr;
  /// The options with which `shard` ranks have one copy of the state, and there are `replicate` copies. Empty: it has no such options.
  std::function<nlohmann::json(int64_t replicate, int64_t shard)> groups = {};
  /// The axis whose size is "auto" unless the recipe gives one: `tensor` (the devices of a node) or `pipeline` (the ranks that other axes
  /// leave over).
  Axis own_axis = Axis::none;
  bool ranks_are_threads = false;  ///< the ranks of a node are threads of one process
  bool distributed = true;         ///< useful with two or more ranks; one is allowed
  /// Set if it cannot run on this machine: the reason and an alternative. With a plan, it runs under devices.simulate.
  std::string unavailable = "";
  /// Why the job cannot run, and the nearest alternative; nullopt if it can run.
  std::function<std::optional<std::string>(const Job&)> refuse = {};
  /// Notes for a job that can run: an option without effect, traffic that another choice would save.
  std::function<std::vector<std::string>(const Job&)> notes = {};
  /// The strategy with the options that matter most, for lists of candidates: "fsdp FULL_SHARD". Empty: its name.
  std::function<std::string(const Job&)> label = {};
  /// Values for options that say "auto", in the order in which they are tried until a step fits the memory. Empty:
  /// there are no such options.
  std::function<std::vector<nlohmann::json>(const nlohmann::json& options)> variants = {};
  /// The factor on the recipe's learning rates. Empty: 1.
  std::function<double(const Job&)> rate_factor = {};
  /// The plan of what the ranks store and when they communicate. The strategy executes the program of this plan, and the catalog computes
  /// `memory`, `traffic` and `host_work` from it. For a strategy in Lua, the results of its functions
  /// `memory` and `traffic` are added.
  std::function<ParallelPlan(const Job&)> plan = {};
  bool own_units = false;  ///< `plan` does not follow Job::unit_of_parameter
  /// For a strategy in Lua with a function `setup_optimizer`: what it makes of the groups of the optimizer
  /// (selection/script_optimizer.hpp).
  std::function<nlohmann::json(const nlohmann::json& groups, const nlohmann::json& options)> setup_optimizer = {};
  std::function<MemoryParts(const Job&)> memory = {};  ///< without the hooks; claimed_memory() adds them
  std::function<std::vector<Traffic>(const Job&)> traffic = {};
  std::function<HostWork(const Job&)> host_work = {};  ///< empty: none
};

}  // namespace runner
