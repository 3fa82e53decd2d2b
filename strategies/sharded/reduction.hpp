// Accumulates the gradients of a plan's units in flat buffers, and reduces them over ranks into shards.
//
// With an offloaded optimizer the sums are copied to host memory on a side stream, overlapped with backward. The host waits for a
// copy before it adds to the sum, and for all copies in finish().
#pragma once

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/transfers.hpp"
#include "strategies/sharded/groups.hpp"

namespace runner {

/// At most one reduction is in flight, to bound memory.
class GradientReduction {
 public:
  /// `layouts`: one for each unit. Gradients arrive on `device`. Their sums stay there until the update, or in host memory if the
  /// plan offloads the optimizer.
  GradientReduction(const ShardPlan& plan, ShardGroups groups, std::vector<FlatLayout> layouts, torch::Device device);

  /// `reduces`: each unit is reduced when its last gradient of this micro-batch has arrived.
  void begin_micro_batch(bool reduces);
  /// Adds the gradient of an item to the unit's buffer. Returns true for the unit's last gradient of this micro-batch.
  bool arrived(size_t unit, size_t item, const torch::Tensor& gradient);
  /// Call this after backward. It reduces the units in which some parameter got no gradient.
  void end_micro_batch();
  /// Waits for all reductions and copies to the host.
  void finish();
  /// The unit's gradients, valid after finish(): [layout.shard] in the plan's gradient dtype.
  const torch::Tensor& sum(size_t unit) const { return units_[unit].sum; }
  /// Frees all gradients.
  void drop();

 private:
  struct Unit {
    FlatLayout layout;
    torch::Tensor full;         ///< [layout.total], from the first gradient until the reduction has ended
    std::vector<bool> arrived;  ///< for each layout item, since the last reduction
    size_t missing = 0;         ///< items whose gradient has not arrived in this micro-batch
    torch::Tensor reduced;      ///< [layout.shard], reduce dtype: result of a reduction in flight
    c10::intrusive_ptr<c10d::Work> work;
    torch::Tensor sum;
    StreamMark sum_there;  ///< end of the copy of `sum` to host memory
  };
  /// The sum of one micro-batch that is being copied to host memory. It is then added to Unit::sum.
  struct Addend {
    size_t unit;
    torch::Tensor values;
    StreamMark there;
  };

  void make_buffer(Unit& unit);
  void store(Unit& unit, size_t item, const torch::Tensor& gradient);
  void complete(Unit& unit);
  void reduce(size_t u);
  void take_sums(Unit& unit);
  void finish_reduction();
  void move_to_host(size_t u, const torch::Tensor& sum);
  void add_on_host();

  ShardPlan plan_;
  ShardGroups groups_;
  torch::Device device_;
  std::optional<Transfers> to_host_;  ///< set if sums are kept in host memory
  std::vector<Unit> units_;
  bool reduces_ = true;
  std::optional<size_t> in_flight_;
  std::optional<Addend> addend_;  ///< only one at a time, to bound memory
};

}  // namespace runner
