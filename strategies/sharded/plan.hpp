// Sharded data parallelism as a plan: which parameters share a flat buffer, how long each is gathered, what travels in
// which dtype. One machine (strategy.hpp) carries it out, and fsdp, zero and their kin differ in the plans they make.
// Torch-free.
#pragma once
#include "strategies/contract/entry.hpp"
#include "strategies/contract/flat_layout.hpp"

namespace runner {

/// Where bytes wait: in the device's memory, in host memory beside it, in a file on a fast disk.
enum class Tier { device, host, nvme };

/// Parameters that lie in one flat buffer, are gathered and freed together, and whose gradients are reduced together.
struct ShardUnit {
  std::vector<size_t> slots;
  /// Whole on every rank in the dtype of use, also between steps: each update is followed by a gather of its shards.
  bool resident = false;
  // ---- what follows is of units that are not resident
  std::vector<size_t> blocks = {};  ///< ascending: those that need it gathered
  /// The lowest block whose backward reads its parameters (an embedding's does not); blocks.size() of the model if
  /// none.
  size_t first_needed_in_backward = 0;
  bool keep_after_forward = false;  ///< gathered until its backward
  Tier shards = Tier::device;       ///< where its shards wait for the gather
};

/// The file on NVMe of one rank, and how it is used.
struct SwapPlan {
  std::string folder;
  int64_t block_size = 1 << 20;  ///< bytes of one I/O
  int queue_depth = 8, threads = 1;
  int64_t tile = 1 << 20;     ///< elements that the update works on at a time
  int update_buffers = 4;     ///< tiles in memory: read ahead, at work, written behind
  int parameter_buffers = 5;  ///< shards in memory: the one in use and those read ahead
};

/// Where a unit's two copies of a shard are: the master, which the optimizer updates, and what gathers send.
struct ShardPlaces {
  enum class Master { whole, memory, file };        ///< `whole`: part of a resident unit's buffer
  enum class Sent { master, whole, memory, file };  ///< `master`: cast from it when sent
  Master master = Master::memory;
  Sent sent = Sent::master;
};

struct ShardPlan {
  int shards = 1;                     ///< ranks that share one copy
  int replicas = 1;                   ///< copies
  DType parameter = DType::float32;   ///< dtype of gathered parameters
  DType accumulate = DType::float32;  ///< dtype micro-batches are added up in before they are reduced
  DType reduce = DType::float32;      ///< dtype gradients are reduced in
  DType gradient = DType::float32;    ///< dtype reduced gradients wait in for the update
  bool reduce_every_micro_batch = false;
  bool reduce_by_all_reduce = false;  ///< instead of reduce-scatter: every rank gets all sums and keeps its shard
  bool gather_by_broadcast = false;   ///< resident units: each rank's shard is broadcast, instead of an all-gather
  double predivide = 1.0;             ///< gradients are divided by it before their sum and multiplied after
  /// The device has memory of its own. Where it has not, Tier::host means nothing and is never found in a plan.
  bool separate_host = false;
  bool pin_memory = true;         ///< what lies in host memory beside a device is pinned
  Tier optimizer = Tier::device;  ///< where the optimizer works and keeps its state, and masters of another dtype
  SwapPlan swap;                  ///< where some tier is nvme
  bool saves_whole = false;       ///< checkpoints are one file of whole tensors
  enum class Prefetch { none, before, after };
  Prefetch backward_prefetch = Prefetch::none;  ///< of the next unit: before or after this one's gradients are there
  bool forward_prefetch = false;
  /// Gathers run beside computation, as on CUDA: prefetches are made. On CPU a gather runs in the thread that asks for
  /// it.
  bool prefetches = false;
  bool overlap = false;           ///< reductions run beside backward: a unit's ends when the next one's begins
  int64_t prefetch_elements = 0;  ///< units beyond the next one are fetched while all of them stay below
  int64_t update_elements = 0;    ///< > 0: the update works on so many elements at a time where it needs copies
  std::vector<ShardUnit> units;   ///< in order of their first block

  /// Blocks see gathered copies, not the shards themselves.
  bool own_copy(DType master) const;
  ShardPlaces places(const ShardUnit& unit, DType master) const;
  /// The update runs beside the next forward: in host memory beside a device, with no file in play.
  bool updates_beside() const;
  /// The update writes a unit's new values to host memory, in the dtype of use, on their way to the device.
  bool written_apart(const ShardUnit& unit, DType master) const;
  /// Arrays of this rank's file: state, masters, shards to be sent where those are not the masters.
  struct SwapUse {
    bool state = false, master = false, sent = false;
    bool any() const { return state || master || sent; }
  };
  SwapUse swap_use(DType master) const;
};

/// Why the ranks cannot be cut into groups of `group` that each share one copy, and which sizes `option` may have;
/// nullopt if they can.
std::optional<std::string> refuse_groups(const Job& job, const std::string& form, const std::string& option,
                                         int64_t group);
/// The unit that each block gathers; plan.units.size() where none.
std::vector<size_t> units_of_blocks(const ShardPlan& plan, size_t blocks);
/// The resident units whose parameters each block uses, ascending.
std::vector<std::vector<size_t>> resident_units_of_blocks(const ModelSpec& model, const ShardPlan& plan);
/// All units, by the first block that uses them.
std::vector<size_t> units_in_forward(const ModelSpec& model, const ShardPlan& plan);
/// For each block the units to gather ahead of their use when it is in its forward or backward, nearest first: the next
/// one, and more while all of them together stay below prefetch_elements.
std::vector<std::vector<size_t>> units_ahead(const ModelSpec& model, const ShardPlan& plan, bool backward);

/// What the machine calls, and holds, in a step of this plan.
std::vector<Traffic> sharded_traffic(const Job& job, const ShardPlan& plan);
HostWork sharded_host_work(const Job& job, const ShardPlan& plan);
MemoryParts sharded_memory(const Job& job, const ShardPlan& plan);

}  // namespace runner
