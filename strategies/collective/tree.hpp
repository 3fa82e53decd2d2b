// Sums of a few numbers along a tree of messages: 2 log2(ranks) messages one after the other, where a ring takes 2 (ranks - 1).
//
// The tree is that of reduction.hpp, so the bits are those of every other transport. The root of the ranks [low, high) is low, which gets
// the sum of [middle, high) from its root, middle. Over all ranks a sum takes 2 (ranks - 1) messages of the size of the tensor; a rank
// sends two on average, and rank 0 log2(ranks). Neighbouring ranks, such as those of a node, sum among themselves first.
#pragma once
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "strategies/collective/libtorch.hpp"

namespace runner {

struct TreePlace {
  int parent = -1;            ///< -1 for rank 0
  std::vector<int> children;  ///< in the order in which their sums are added
};
TreePlace place_in_tree(int rank, int ranks);

/// The largest tensor for which the tree takes less time than a ring.
constexpr size_t tree_bytes_max = 1024;
/// Whether `tensor` is small, on the CPU, contiguous, and of a dtype and operation whose partial results are exact or rounded as in
/// reduction.hpp: sums of 16-bit floats are not.
bool suits_tree(const at::Tensor& tensor, c10d::ReduceOp::RedOpType operation);

/// All ranks of `messages` call it. Returns when the result is in `tensor`. Throws what send, receive and their wait() throw.
void tree_all_reduce(c10d::Backend& messages, at::Tensor& tensor, c10d::ReduceOp::RedOpType operation);

}  // namespace runner
