// Muon's work on matrices, and which rank computes which of the matrices that several ranks share. Torch-free.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace runner {

/// FLOPs of the Newton-Schulz iterations of a matrix [rows, columns]: three products each, with the smaller side squared. A
/// multiply-add counts as 2.
inline double muon_flops(const std::vector<int64_t>& shape, int64_t steps) {
  const auto side = static_cast<double>(std::min(shape[0], shape[1])),
             other = static_cast<double>(std::max(shape[0], shape[1]));
  return static_cast<double>(steps) * 2 * side * side * (2 * other + side);
}

/// The order in which `ranks` ranks compute matrices of these shapes: the largest first. In each round of `ranks` matrices, rank r
/// computes the matrix r. So the ranks get almost equal work, and each has one whole matrix at a time.
inline std::vector<size_t> order_of_matrices(const std::vector<std::vector<int64_t>>& shapes) {
  std::vector<size_t> order(shapes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return muon_flops(shapes[i], 1); });
  return order;
}

}  // namespace runner
