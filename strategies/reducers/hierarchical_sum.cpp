// A sum of gradients in two levels: inside each node, and then over the nodes.
//
// The ranks of a node divide a bucket: each gets the sum of one part over the node (reduce-scatter). Ranks with the same place in their
// nodes sum this part over the nodes (all-reduce), and each node gathers the parts (all-gather). So all ranks have the same bits. A bucket
// takes its second and third exchange when the next two buckets begin, so that these exchanges also overlap with backward. Source:
// NCCLHierarchicalAllreduce and NCCLTorusAllreduce of Horovod. They reduce the elements that equal parts leave over in another way; here
// zeros complete the last part.
#include <fmt/format.h>

#include "strategies/contract/dtype.hpp"
#include "strategies/contract/state_tensor.hpp"
#include "strategies/reducers/base_reducer.hpp"
#include "strategies/reducers/hierarchical_sum_plan.hpp"

namespace runner {

namespace {

class HierarchicalSum : public BaseReducer {
 public:
  HierarchicalSum(World& world, const ReducerPlan& plan, const Job& job)
      : BaseReducer(world, plan),
        groups_(node_groups(job, true)),
        predivide_(hierarchical_sum_options().read(plan.options).predivide) {}

 protected:
  void prepared() override {
    exchanges_.resize(buckets_.size());
    node_ = neighbours(world_, groups_.node, "sum_node");
    for (int64_t place = 0; place < groups_.node; ++place) {
      std::vector<int> ranks;
      for (int64_t rank = place; rank < world_.size; rank += groups_.node) ranks.push_back(static_cast<int>(rank));
      if (auto group = world_.make_subgroup(ranks, fmt::format("sum_nodes_{}", place))) nodes_ = std::move(group);
    }
  }

  /// Not in the dtype of the wire: gradients are divided before they are cast, and multiplied after they are cast back.
  torch::ScalarType dtype_of_values() const override { return buckets_.front().gradients.scalar_type(); }

  void start(size_t b, torch::Tensor& values) override {
    if (predivide_ != 1) values.div_(predivide_);
    auto& exchange = exchanges_[b];
    exchange.whole = message_of(values);
    exchange.part = torch::empty({exchange.whole.numel() / groups_.node}, exchange.whole.options());
    exchange.work = node_->_reduce_scatter_base(exchange.part, exchange.whole);
    if (b >= 1) sum_over_nodes(b - 1);
    if (b >= 2) gather(b - 2);
  }

  void complete(size_t b, torch::Tensor& values) override {
    if (b == 0) end_all();
    auto exchange = std::exchange(exchanges_[b], {});
    wait(exchange.work);
    if (!exchange.whole.is_same(values)) values.copy_(exchange.whole.narrow(0, 0, values.numel()));
    if (predivide_ != 1) values.mul_(predivide_);
  }

 private:
  struct Exchange {
    torch::Tensor whole, part;  ///< the bucket as it is sent, and the part of it that this rank sums
    Work work;                  ///< the exchange that has begun
  };

  /// `values` themselves if they can be sent as they are.
  torch::Tensor message_of(const torch::Tensor& values) const {
    const int64_t elements = values.numel(), padded = hierarchical_sum_elements(elements, groups_);
    const auto wire = scalar_type(plan_.wire);
    if (padded == elements && values.scalar_type() == wire) return values;
    auto message = torch::zeros({padded}, values.options().dtype(wire));
    message.narrow(0, 0, elements).copy_(values);
    return message;
  }

  void sum_over_nodes(size_t b) {
    wait(exchanges_[b].work);
    exchanges_[b].work = start_sum(exchanges_[b].part, nodes_);
  }

  void gather(size_t b) {
    auto& exchange = exchanges_[b];
    wait(exchange.work);
    exchange.work = node_->_allgather_base(exchange.whole, exchange.part);
  }

  /// Starts the exchanges of the last two buckets that no later bucket has started.
  void end_all() {
    const size_t last = buckets_.size() - 1;
    sum_over_nodes(last);
    if (last > 0) gather(last - 1);
    gather(last);
  }

  NodeGroups groups_;
  double predivide_;
  ProcessGroup node_, nodes_;        ///< the ranks of this node; those with the same place in all nodes
  std::vector<Exchange> exchanges_;  ///< of each bucket
};

}  // namespace

std::shared_ptr<Reducer> make_hierarchical_sum(World& world, const ReducerPlan& plan, const Job& job) {
  return std::make_shared<HierarchicalSum>(world, plan, job);
}

}  // namespace runner
