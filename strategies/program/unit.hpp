// Units: the parameters that share one flat buffer, and how strategies divide a model into them. Torch-free.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "strategies/contract/model_spec.hpp"

namespace runner {

/// A kind of storage: device memory, host memory outside the device, or a file on a fast disk.
enum class Tier { device, host, nvme };

/// Parameters that share one flat buffer. They are gathered and freed together, and their gradients are reduced together.
struct Unit {
  std::vector<size_t> slots;
  /// Unsharded on every rank in the gathered dtype, also between steps. If each rank updates only a shard, the shards are gathered
  /// after each update.
  bool resident = false;
  /// Every rank updates all of the unit, although other units are sharded. Only with ParallelPlan::own_reducer.
  bool replicated = false;
  /// The unit's parameters are not trained (ParameterSpec::trainable): no gradients, no optimizer state, no update.
  bool frozen = false;
  /// Stored in NF4, in shards without masters. A gather sends the packed bytes, and the unit is dequantized when a block waits for it.
  /// Every rank has all of it if `replicated` or if nothing is sharded. Frozen and not resident.
  bool quantized = false;
  // ---- only for units that are not resident
  std::vector<size_t> blocks = {};  ///< blocks that need the unit gathered, ascending; a block may need several units
  /// The lowest block whose backward reads the unit's parameters (an embedding's backward does not). The model's number of blocks
  /// if there is none.
  size_t first_needed_in_backward = 0;
  bool keep_after_forward = false;  ///< stays gathered between forward and backward
  Tier tier = Tier::device;         ///< where shards are stored between gathers
};

/// Units in the order of their first block. `policy`: "block": each layer is a unit. "size": a unit is a run of consecutive
/// layers with at least min_num_params parameters (the last may have fewer). "none": one unit. "names": `names` are globs over the
/// names of layers and blocks; each matching layer is a unit, or else each matching block, and all other blocks are one unit. Blocks
/// that share parameters are always in one unit. The frozen parameters of a unit are a unit of their own.
std::vector<Unit> make_units(const ModelSpec& model, const std::string& policy, int64_t min_num_params,
                             const std::vector<std::string>& names);

/// A unit for each key. `keys`: one for each parameter, in the order of slots. Frozen parameters are in units of their own. A block that
/// uses parameters of several units needs all of them gathered.
std::vector<Unit> units_of_keys(const ModelSpec& model, const std::vector<size_t>& keys);

/// The unit that resident_units() fills.
struct UnitFill {
  size_t unit = 0;   ///< 0: the unit of the last blocks
  int64_t held = 0;  ///< elements in the unit
  int64_t next = 0;  ///< elements of the block that would be added
};
/// Resident units of the parameters in `slots` (ascending). Units are filled from the last block to the first, because backward
/// computes gradients in this order, and are returned in the order of parameters. A unit begins and ends with a block, because its
/// gradients are reduced at the end of a block's backward. Frozen parameters are in units of their own. `is_full`: whether the next
/// block begins another unit.
std::vector<Unit> resident_units(const ModelSpec& model, const std::vector<size_t>& slots,
                                 const std::function<bool(const UnitFill&)>& is_full);

/// Resident units of the parameters in `slots` (ascending), one for each key that they have. `keys`: as in units_of_keys().
std::vector<Unit> resident_units_of_keys(const ModelSpec& model, const std::vector<size_t>& slots,
                                         const std::vector<size_t>& keys);

/// Sorts units by their first parameter, so that a norm sums their squares in this order.
void sort_by_slot(std::vector<Unit>& units);

}  // namespace runner
