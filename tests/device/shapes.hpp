// The shapes of an operator's results, before it runs.
#pragma once
#include <optional>

#include "tests/device/call.hpp"

namespace runner::simulated {

struct Shape {
  bool defined = false;
  std::vector<int64_t> sizes = {}, strides = {};
  at::ScalarType dtype = at::kFloat;
};
/// By result: its tensors, several where it is a list.
using Shapes = std::vector<std::vector<Shape>>;

/// By the operator's meta kernel, or else by one run on zeros on the CPU; each call of the same operator with the same
/// shapes and scalars is answered from a cache. nullopt if some result is no tensor.
std::optional<Shapes> shapes_of_results(const Call& call);

}  // namespace runner::simulated
