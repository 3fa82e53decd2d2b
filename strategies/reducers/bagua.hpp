// The base class of Bagua's reducers: sums within a node, and exchanges between nodes.
#pragma once
#include "strategies/reducers/bagua_plan.hpp"
#include "strategies/reducers/base_reducer.hpp"

namespace runner {

class BaguaReducer : public BaseReducer {
 public:
  BaguaReducer(World& world, const ReducerPlan& plan, const Job& job)
      : BaseReducer(world, plan), options_(bagua_options().read(plan.options)), groups_(groups_of(options_, job)) {}

 protected:
  void prepared() override {
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

  /// Whether this rank exchanges with those of other nodes.
  bool exchanges() const { return world_.rank % groups_.node == 0; }
  /// The node of this rank.
  int64_t node() const { return world_.rank / groups_.node; }
  /// The sum over the node's ranks, on its first rank; null if a node has one rank.
  Work start_node_sum(const torch::Tensor& tensor) const {
    if (!node_) return {};
    std::vector<at::Tensor> tensors{tensor};
    c10d::ReduceOptions options;
    options.reduceOp = c10d::ReduceOp::SUM;
    options.rootRank = 0;
    return node_->reduce(tensors, options);
  }

  /// From the first rank of the node to the others.
  Work start_node_broadcast(const torch::Tensor& tensor) const {
    if (!node_) return {};
    std::vector<at::Tensor> tensors{tensor};
    return node_->broadcast(tensors, {});
  }
  /// Sends to the rank that exchanges for the node `by` nodes further, and receives from that of the node `by` nodes before.
  Work start_shift(const torch::Tensor& received, const torch::Tensor& sent, int64_t by) const {
    const auto turned = [&](int64_t turn) { return ((node() + turn) % groups_.nodes + groups_.nodes) % groups_.nodes; };
    return start_exchange(exchange_, turned(by), sent, turned(-by), received);
  }

  BaguaOptions options_;
  NodeGroups groups_;
  ProcessGroup node_;      ///< of this rank; null if it has one rank
  ProcessGroup exchange_;  ///< null if this rank does not exchange, or there is one node
};

}  // namespace runner
