// Horovod's Adasum: ranks update with their own gradients, and the updates of all ranks are combined.
//
// Two updates a and b of a parameter are combined to (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b: equal ones are
// averaged, and orthogonal ones are added. Pairs of ranks are combined, then pairs of pairs, and so on. At each level a
// rank sends half of its part to its partner and combines the other half, so parts become shorter (vector halving);
// afterwards the halves return. Products a.b and norms are those of whole parameters, so they are summed over the ranks
// that share a vector. Source: Maleki et al., Scaling Distributed Training with Adaptive Summation (MLSys 2021);
// adasum.h of Horovod.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "strategies/contract/dtype.hpp"
#include "strategies/contract/state_tensor.hpp"
#include "strategies/reducers/adasum_plan.hpp"
#include "strategies/reducers/base_reducer.hpp"

namespace runner {

namespace {

/// A range of a bucket's elements.
struct Range {
  int64_t begin = 0, count = 0;
};

class Adasum : public BaseReducer {
 public:
  Adasum(World& world, const ReducerPlan& plan, const Job& job)
      : BaseReducer(world, plan), groups_(adasum_groups(horovod_options().read(plan.options), job)) {}

  void after_update() override {
    if (world_.size == 1) return;
    torch::NoGradGuard no_grad;
    for (size_t b = 0; b < buckets_.size(); ++b) {
      auto& parameters = buckets_[b].parameters;
      auto update = (parameters - starts_[b]).to(scalar_type(plan_.wire));
      combine(buckets_[b], update);
      parameters.copy_(starts_[b].add_(update));
    }
  }

 protected:
  void prepared() override {
    if (world_.size == 1) return;
    if (groups_.node > 1) node_ = neighbours(world_, groups_.node, "adasum_node");
    for (int64_t nodes = 2; nodes <= groups_.nodes; nodes *= 2)
      levels_.push_back(neighbours(world_, nodes * groups_.node, fmt::format("adasum_{}", nodes)));
    for (const auto& bucket : buckets_)
      starts_.push_back(torch::empty_like(bucket.parameters, wide_dtype(bucket.parameters)));
  }

  /// Not in the dtype of the wire: gradients are not sent.
  torch::ScalarType dtype_of_values() const override { return buckets_.front().gradients.scalar_type(); }
  void start(size_t, torch::Tensor&) override {}
  void complete(size_t b, torch::Tensor& values) override {
    if (world_.size == 1) return;
    to_own_mean(values);
    starts_[b].copy_(buckets_[b].parameters);
  }

 private:
  int64_t node() const { return world_.rank / groups_.node; }
  int64_t place() const { return world_.rank % groups_.node; }

  /// `update` becomes the combination of the updates of all ranks.
  void combine(const Bucket& bucket, torch::Tensor& update) const {
    const int64_t elements = update.numel();
    auto whole = torch::zeros({adasum_elements(elements, groups_)}, update.options());
    whole.narrow(0, 0, elements).copy_(update);
    Range range{.count = whole.numel() / groups_.node};
    auto part = whole;
    if (node_) {
      range.begin = place() * range.count;
      part = torch::empty({range.count}, update.options());
      node_->_reduce_scatter_base(part, whole)->wait();
    }
    combine_nodes(bucket, part, range, 0);
    if (node_) node_->_allgather_base(whole, part)->wait();
    update.copy_(whole.narrow(0, 0, elements));
    if (node_) update.div_(static_cast<double>(groups_.node));
  }

  /// `part`: elements `range` of the bucket, of this rank's group of 2^level nodes.
  void combine_nodes(const Bucket& bucket, const torch::Tensor& part, const Range& range, size_t level) const {
    if (level == levels_.size()) return;
    const int64_t bit = int64_t{1} << level, half = range.count / 2;
    const bool is_left = (node() & bit) == 0;
    const int64_t partner = (node() ^ bit) * groups_.node + place();
    auto own = part.narrow(0, is_left ? 0 : half, half), other = part.narrow(0, is_left ? half : 0, half);
    auto received = torch::empty_like(own);
    exchange(other, received, partner);
    const Range kept{.begin = range.begin + (is_left ? 0 : half), .count = half};
    add_pair(bucket, is_left ? own : received, is_left ? received : own, kept, level);
    if (!is_left) own.copy_(received);
    combine_nodes(bucket, own, kept, level + 1);
    exchange(own, received, partner);
    other.copy_(received);
  }

  /// `left` becomes the combination of both.
  void add_pair(const Bucket& bucket, torch::Tensor& left, const torch::Tensor& right, const Range& range,
                size_t level) const {
    const auto count = std::ssize(bucket.items);
    auto norms = torch::zeros({count, 3}, torch::dtype(torch::kFloat64).device(world_.device));
    const auto each_piece = [&](const auto& function) {
      for (int64_t i = 0; i < count; ++i) {
        const auto& item = bucket.items[static_cast<size_t>(i)];
        const int64_t end = std::min(item.offset + item.numel(), range.begin + range.count);
        for (int64_t from = std::max(item.offset, range.begin); from < end; from += adasum_piece) {
          const int64_t begin = from - range.begin, length = std::min(adasum_piece, end - from);
          function(i, left.narrow(0, begin, length), right.narrow(0, begin, length));
        }
      }
    };
    each_piece([&](int64_t i, const torch::Tensor& a, const torch::Tensor& b) {
      const auto x = a.to(torch::kFloat64), y = b.to(torch::kFloat64);
      norms[i][0].add_(torch::dot(x, y));
      norms[i][1].add_(torch::dot(x, x));
      norms[i][2].add_(torch::dot(y, y));
    });
    if (auto work = start_sum(norms, levels_[level])) work->wait();
    norms = norms.cpu();
    each_piece([&](int64_t i, const torch::Tensor& a, const torch::Tensor& b) {
      const auto* of_item = norms.data_ptr<double>() + 3 * i;
      const auto sum = a.to(wide_dtype(a)) * factor(of_item[0], of_item[1]);
      a.copy_(sum.add(b, factor(of_item[0], of_item[2])));
    });
  }

  static double factor(double product, double norm) {
    static const double least = std::sqrt(std::numeric_limits<double>::min());
    return norm < least ? 1 : 1 - product / (2 * norm);
  }

  void exchange(const torch::Tensor& sent, const torch::Tensor& received, int64_t partner) const {
    start_exchange(world_.group, partner, sent, partner, received)->wait();
  }

  NodeGroups groups_;
  ProcessGroup node_;                  ///< null: each rank is a node
  std::vector<ProcessGroup> levels_;   ///< this rank's groups of 2, 4, ... nodes
  std::vector<torch::Tensor> starts_;  ///< the parameters of each bucket before the update
};

}  // namespace

std::shared_ptr<Reducer> make_adasum(World& world, const ReducerPlan& plan, const Job& job) {
  return std::make_shared<Adasum>(world, plan, job);
}

}  // namespace runner
