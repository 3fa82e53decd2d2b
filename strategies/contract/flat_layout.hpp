// The layout of a unit's parameters in one flat buffer, which is split into equal shards. This header is torch-free, because
// entries compute bytes from it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "strategies/contract/model_spec.hpp"

namespace runner {

/// Sum of the elements of the parameters in `slots`.
int64_t elements_of(const ModelSpec& model, const std::vector<size_t>& slots);

/// Every parameter begins at a multiple of 32 elements (64 bytes in 16-bit dtypes), so that it is aligned like a separate tensor.
/// The gaps and the tail are zero. Every parameter count can be split over every number of ranks.
struct FlatLayout {
  struct Item {
    size_t slot;     ///< of the model
    int64_t offset;  ///< in the flat buffer, elements
    int64_t numel;
  };
  std::vector<Item> items;
  int64_t total = 0;  ///< elements, a multiple of `shards`
  int64_t shard = 0;  ///< total / shards
};

FlatLayout make_flat_layout(const ModelSpec& model, const std::vector<size_t>& slots, int shards);

/// Parameters that are gathered and freed together, and the blocks that own them.
struct Unit {
  std::vector<size_t> blocks;
  std::vector<size_t> slots;
  /// Lowest block of the unit whose backward reads parameters (an embedding's backward does not). The model's number of blocks if
  /// there is none.
  size_t first_needed_in_backward = 0;
  bool frozen = false;  ///< its parameters are not trained
};

/// Units in the order of their first block. `policy`: "block": each layer is a unit. "size": a unit is a run of consecutive
/// layers with at least min_num_params parameters (the last may have fewer). "none": one unit. "names": `names` are globs over the
/// names of layers and blocks; each matching layer is a unit, or else each matching block, and all other blocks are one unit. Blocks
/// that share parameters are always in one unit. The frozen parameters of a unit are a unit of their own.
std::vector<Unit> make_units(const ModelSpec& model, const std::string& policy, int64_t min_num_params,
                             const std::vector<std::string>& names);

}  // namespace runner
