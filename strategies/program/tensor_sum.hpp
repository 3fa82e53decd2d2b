// The gradients of a unit that the ranks of the tensor axis add (TensorPart::sums_replicas): those of parameters of which several
// ranks have the same part, while each rank computes only a part of the gradient. They travel in one message. Torch-free.
#pragma once
#include <vector>

#include "strategies/contract/flat_layout.hpp"

namespace runner {

struct TensorSum {
  /// A parameter's gradient in the message.
  struct Part {
    size_t item;    ///< of the unit's layout
    int64_t begin;  ///< first element in the message
  };
  std::vector<Part> parts;
  int64_t elements = 0;  ///< of the message
  /// The message is the beginning of the unit's flat buffer. Otherwise it is a tensor of its own: parameters that only neighbours share,
  /// such as those of a key head, have a place in it for each such group of ranks, and zeros at the places of the others.
  bool in_place = true;

  bool empty() const { return parts.empty(); }
};

/// The sum of this rank (ModelSpec::division).
TensorSum tensor_sum(const ModelSpec& model, const FlatLayout& layout);

}  // namespace runner
