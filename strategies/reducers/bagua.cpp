#include "strategies/reducers/bagua.hpp"

#include <fmt/format.h>

namespace runner {

void BaguaReducer::prepared() {
  if (groups_.node > 1) node_ = neighbours(world_, groups_.node, "bagua_node");
  if (groups_.nodes == 1) return;
  if (groups_.node == 1) {
    exchange_ = world_.group;
    return;
  }
  std::vector<int> first;
  for (int64_t rank = 0; rank < world_.size; rank += groups_.node) first.push_back(static_cast<int>(rank));
  exchange_ = world_.make_subgroup(first, "bagua_nodes");
}

Work BaguaReducer::start_node_sum(const torch::Tensor& tensor) const {
  if (!node_) return {};
  std::vector<at::Tensor> tensors{tensor};
  c10d::ReduceOptions options;
  options.reduceOp = c10d::ReduceOp::SUM;
  options.rootRank = 0;
  return node_->reduce(tensors, options);
}

Work BaguaReducer::start_node_broadcast(const torch::Tensor& tensor) const {
  if (!node_) return {};
  std::vector<at::Tensor> tensors{tensor};
  return node_->broadcast(tensors, {});
}

Work BaguaReducer::start_shift(const torch::Tensor& received, const torch::Tensor& sent, int64_t by) const {
  const auto turned = [&](int64_t turn) { return ((node() + turn) % groups_.nodes + groups_.nodes) % groups_.nodes; };
  return start_exchange(exchange_, turned(by), sent, turned(-by), received);
}

}  // namespace runner
