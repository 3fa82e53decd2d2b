// The layout of a unit's parameters in one flat buffer, which is split into equal shards. This header is torch-free, because
// entries compute bytes from it.
#pragma once
#include <cstdint>
#include <vector>

#include "strategies/contract/model_spec.hpp"

namespace runner {

/// The parameters of a model (ModelSpec::parameters()), by their slots.
using Parameters = std::vector<const ParameterSpec*>;

/// Sum of the elements of the parameters in `slots`.
int64_t elements_of(const Parameters& parameters, const std::vector<size_t>& slots);

constexpr int64_t slot_alignment = 32;

/// Every parameter begins at a multiple of 32 elements (64 bytes in 16-bit dtypes), so that it is aligned like a separate tensor.
/// Parameters in NF4 begin at a multiple of its block, and so do shards. The gaps and the tail are zero. Every parameter count can be
/// split over every number of ranks. Parameters whose gradients the ranks of the tensor axis add (TensorPart::sums_replicas) come first, so
/// that they begin the buffer on all of these ranks.
struct FlatLayout {
  struct Item {
    size_t slot;     ///< of the model
    int64_t offset;  ///< in the flat buffer, elements
    int64_t numel;
  };
  std::vector<Item> items;
  int64_t total = 0;   ///< elements, a multiple of `shards`
  int64_t shard = 0;   ///< total / shards
  int64_t summed = 0;  ///< elements of the parameters that come first, with their gaps
};

/// `alignment`: parameters and shards begin at multiples of this number of elements.
FlatLayout make_flat_layout(const Parameters& parameters, const std::vector<size_t>& slots, int shards,
                            int64_t alignment = slot_alignment);

}  // namespace runner
