// How the parameters of a unit lie in one flat buffer that is cut into equal shards. Torch-free: entries compute bytes
// from it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "strategies/contract/model_spec.hpp"

namespace runner {

/// Elements of the parameters in `slots` together.
int64_t elements_of(const ModelSpec& model, const std::vector<size_t>& slots);

/// Every parameter begins at a multiple of 32 elements (64 bytes in 16-bit dtypes), so that kernels see the alignment
/// they would see in tensors of their own; the gaps and the tail are zero. Any parameter count goes on any number of
/// ranks.
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

/// The blocks that are gathered and freed together, in order of their first block.
struct Unit {
  std::vector<size_t> blocks;
  std::vector<size_t> slots;
  /// The lowest block whose backward reads parameters (an embedding's does not); blocks.size() of the model if none.
  size_t first_needed_in_backward = 0;
};

/// `policy`: "block" = each block a unit; "size" = consecutive blocks until min_num_params; "none" = one unit; "names":
/// `names` are globs over block names, each match is a unit and the rest is one. Blocks that share parameters are
/// always one unit.
std::vector<Unit> make_units(const ModelSpec& model, const std::string& policy, int64_t min_num_params,
                             const std::vector<std::string>& names);

}  // namespace runner
