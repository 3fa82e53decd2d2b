// The plan of what the ranks of a strategy store and communicate: which parameters share a flat buffer, which ranks keep which shard, and
// the dtypes. Every strategy makes a plan from its options. step_program() writes the step of a plan. This header is torch-free.
#pragma once
#include "strategies/contract/entry.hpp"
#include "strategies/contract/flat_layout.hpp"
#include "strategies/contract/loss_scaler.hpp"
#include "strategies/pipeline/schedule.hpp"
#include "strategies/program/unit.hpp"

namespace runner {

/// The file of one rank on NVMe.
struct SwapPlan {
  std::string folder;
  int64_t block_size = 1 << 20;  ///< bytes of one I/O request
  int queue_depth = 8, threads = 1;
  int64_t tile = 1 << 20;     ///< elements that the update processes at a time
  int update_buffers = 4;     ///< tiles in memory: read in advance, in use, or being written
  int parameter_buffers = 5;  ///< shards in memory: in use, or read in advance
};

/// Where a shard's two copies are stored: the master, which the optimizer updates, and the copy that gathers send.
struct ShardPlaces {
  enum class Master { none, whole, memory, file };  ///< `whole`: in the unsharded buffer of a resident unit
  /// `shared`: no second copy and no gather, blocks use the master. `master`: no second copy, the master is cast when it is sent.
  /// `packed`: the only copy, in NF4.
  enum class Sent { shared, master, whole, memory, file, packed };
  Master master = Master::memory;
  Sent sent = Sent::master;
};

/// A built-in Reducer: which one it is, what it keeps and what it sends.
struct ReducerPlan {
  /// Bytes on each rank because of a unit.
  struct Bytes {
    int64_t kept = 0;               ///< also between steps, and in checkpoints
    int64_t unsaved = 0;            ///< also between steps, but not in checkpoints
    int64_t held = 0;               ///< from the start of the reduction to its end
    int64_t start = 0, finish = 0;  ///< more at these moments
    int64_t after_update = 0;       ///< at most, while after_update() works on this unit; units follow one another
  };
  std::string name = "";
  nlohmann::json options = nlohmann::json::object();
  DType wire = DType::float32;  ///< dtype of what it sends, if that is not 8 bits
  bool replicas_differ = false;
  std::optional<int64_t> qadam_warmup = {};  ///< OptimizerConfig::qadam_warmup
  std::vector<Bytes> bytes = {};             ///< of each unit
  std::vector<Traffic> traffic = {};
};

/// A step that XLA compiles (strategies/xla).
struct CompiledPlan {
  bool reports = false;     ///< says what is compiled, and what that costs
  std::string plugin = "";  ///< path of the PJRT plug-in; empty: the one for CPUs
  std::string store = "";   ///< folder of compiled programs; empty: they are not stored
};

struct ParallelPlan {
  PipelineShape pipeline = {};       ///< its micro-batches are those of a step
  Mesh mesh;                         ///< of the job, with its axis `data` split into `replicate` and `shard`
  DType master = DType::float32;     ///< dtype of the values that the optimizer updates
  DType parameter = DType::float32;  ///< dtype of gathered parameters
  DType compute =
      DType::float32;  ///< dtype of gathered quantized parameters: that of computation, so that blocks do not cast them
  DType accumulate = DType::float32;  ///< dtype in which gradients are accumulated before they are reduced
  DType reduce = DType::float32;      ///< dtype in which gradients are reduced
  DType gradient = DType::float32;    ///< dtype of reduced gradients until the update
  bool reduce_every_micro_batch = false;
  bool reduce_by_all_reduce = false;  ///< instead of reduce-scatter: every rank gets all sums and keeps its shard
  bool gather_by_broadcast = false;   ///< resident units: each rank broadcasts its shard, instead of an all-gather
  double gradient_factor = 1.0;       ///< factor on all gradients; the number of ranks if they are summed
  double predivide = 1.0;             ///< gradients are divided by it before their sum and multiplied after
  /// The device has separate memory (CUDA). If it is false, the plan does not contain Tier::host.
  bool separate_host = false;
  bool pin_memory = false;        ///< host memory that the device copies from or to is pinned
  Tier optimizer = Tier::device;  ///< where optimizer state and separate masters are; nvme: updated on the host
  SwapPlan swap;                  ///< used if some tier is nvme
  bool saves_whole = false;       ///< checkpoints are one file of unsharded tensors
  enum class Prefetch { none, before, after };
  Prefetch backward_prefetch = Prefetch::none;  ///< of the next unit, before or after this unit's backward
  bool forward_prefetch = false;
  /// Gathers can overlap with computation (CUDA), so prefetches are made. On CPU a gather runs in the calling thread.
  bool prefetches = false;
  bool overlap = false;              ///< reductions overlap with backward
  int64_t reductions_in_flight = 1;  ///< reductions that overlap with each other at most
  /// A Reducer (reducer.hpp) reduces the gradients. Their buffers exist between steps, because scripts may keep them.
  bool own_reducer = false;
  bool reduces_in_backward = true;  ///< the Reducer communicates during backward, and not after the update
  ReducerPlan reducer = {};         ///< the built-in Reducer (reducers/built_in.hpp); without a name: that of a script
  int64_t prefetch_elements = 0;    ///< more units than the next one are prefetched up to this number of elements
  int64_t alignment = slot_alignment;         ///< shards begin at multiples of this number of elements of a parameter
  int64_t update_elements = 0;                ///< > 0: the update copies at most this number of elements at a time
  std::vector<Unit> units;                    ///< in the order of their first block
  std::optional<LossScalePolicy> loss_scale;  ///< of 16-mixed, if it is not the default
  std::optional<CompiledPlan> compiled = {};  ///< the engine is XLA's

  /// Ranks over which one copy of the parameters is sharded, and the number of complete copies: 1 if all data ranks share one
  /// copy, the number of data ranks if nothing is sharded.
  int shards() const { return mesh.size(Axis::shard); }
  int copies() const { return mesh.size(Axis::replicate); }
  ShardPlaces places(const Unit& unit) const;
  DType gathered(const Unit& unit) const { return unit.quantized ? compute : parameter; }
  /// Gradients stay the tensors that autograd computed, instead of being copied to a flat buffer: there is nothing to reduce or
  /// to cast.
  bool takes_gradients() const;
  /// The update overlaps with the next forward: it runs in host memory for a device, and no file is used.
  bool updates_beside() const;
  /// The update writes a unit's new values to an additional buffer in host memory, in the gathered dtype, to copy them to the
  /// device.
  bool written_apart(const Unit& unit) const;
  /// Arrays in this rank's file: optimizer state, masters, and the shards that gathers send if they are not the masters.
  struct SwapUse {
    bool state = false, master = false, sent = false;
    bool any() const { return state || master || sent; }
  };
  SwapUse swap_use() const;
};

/// Every rank has all parameters in the dtype of the masters, and gradients are summed over the copies. A unit is a run of
/// blocks: from the last block backward, until it has at least `first_bytes` (the last unit) or `unit_bytes` (the others) of parameters.
/// `shard` (optional) selects parameters whose optimizer state is sharded over all ranks; they are in units of their own.
ParallelPlan replicated_plan(const Job& job, int64_t first_bytes, int64_t unit_bytes,
                             const std::function<bool(const ParameterSpec&)>& shard = {});

/// A replicated_plan() with units of the size of DistributedDataParallel's buckets (gradient_buckets.hpp), which are reduced in backward.
ParallelPlan bucketed_plan(const Job& job);

/// An entry for devices that this program cannot use. Under devices.simulate, CPU processes with bucketed_plan() take their place. `needs`:
/// "for Gaudi devices, and needs ...". `instead`: strategies that run here.
Entry simulated_entry(std::string name, std::string summary, const std::string& needs, const std::string& instead);

/// ParallelPlan::alignment: blocks of an optimizer's quantised state are not cut.
int64_t alignment_of(const Job& job);

/// Puts the quantized parameters of each unit into units of their own, at the end of the list: one for each layer, or one for each
/// block if the unit was resident.
void quantize_units(const Job& job, ParallelPlan& plan);

/// Bytes of a quantized unit.
struct QuantizedBytes {
  int64_t shard = 0;      ///< packed, on each rank; in the unit's tier
  int64_t constants = 0;  ///< of the second level of quantization, on the device of each rank
  int64_t sent = 0;       ///< all shards, if a gather sends them
  int64_t scratch = 0;    ///< temporary tensors of dequantization
};
QuantizedBytes quantized_bytes(const Job& job, const ParallelPlan& plan, const Unit& unit);

/// The job's mesh, with its sharing ranks (the axes `data` and `context`) split into groups of `shards` neighbours. Each group shares one
/// copy of the parameters.
Mesh mesh_with_shards(const Job& job, int shards);
/// The error message if the ranks cannot be split into groups of `group` ranks, with the sizes that `option` may have; otherwise
/// nullopt.
std::optional<std::string> refuse_groups(const Job& job, const std::string& form, const std::string& option,
                                         int64_t group);
/// Whether each rank updates only a shard of the unit.
inline bool is_sharded(const ParallelPlan& plan, const Unit& unit) { return plan.shards() > 1 && !unit.replicated; }
/// The layout of a unit's flat buffers.
FlatLayout layout_of(const ModelSpec& model, const ParallelPlan& plan, const Unit& unit);
/// The layout of one of many units. `parameters`: of the model.
FlatLayout layout_of(const Parameters& parameters, const ParallelPlan& plan, const Unit& unit);
/// The units that are not frozen, ascending. Their gradients are reduced in the opposite order, as backward computes them.
std::vector<size_t> trained_units(const ParallelPlan& plan);
/// For each block, the units that it gathers, ascending.
std::vector<std::vector<size_t>> units_of_blocks(const ParallelPlan& plan, size_t blocks);
/// For each block, the resident units whose parameters it uses, ascending.
std::vector<std::vector<size_t>> resident_units_of_blocks(const ModelSpec& model, const ParallelPlan& plan);
/// All units, in the order of the first block that uses them.
std::vector<size_t> units_in_forward(const ModelSpec& model, const ParallelPlan& plan);
/// For each block, the units to prefetch during its forward or backward, the next one first. More units than the next one are
/// listed as long as all of them together have at most prefetch_elements elements.
std::vector<std::vector<size_t>> units_ahead(const ModelSpec& model, const ParallelPlan& plan, bool backward);

}  // namespace runner
