// Gradients of a plan's units: added up in flat buffers as autograd delivers them, then summed over ranks into shards.
//
// Sums that wait in host memory beside a device travel there on a stream of their own, beside backward: the host waits
// for a copy only where it adds to it, and for all of them in finish().
#pragma once

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/transfers.hpp"
#include "strategies/sharded/groups.hpp"

namespace runner {

/// At most one reduction is in flight, which bounds memory.
class GradientReduction {
 public:
  /// `layouts`: one a unit. Gradients arrive on `device`; their sums wait for the update there, or in host memory
  /// where the plan has the optimizer work beside the device.
  GradientReduction(const ShardPlan& plan, ShardGroups groups, std::vector<FlatLayout> layouts, torch::Device device);

  /// `reduces`: units are reduced when their last gradient of this micro-batch has come.
  void begin_micro_batch(bool reduces);
  /// Takes the gradient of a unit's item; whether it is the unit's last of this micro-batch.
  bool arrived(size_t unit, size_t item, const torch::Tensor& gradient);
  /// After backward: reduces the units of which some parameter got no gradient.
  void end_micro_batch();
  /// All sums are there when it returns, and whoever works where they wait may read them.
  void finish();
  /// [layout.shard], the plan's gradient dtype.
  const torch::Tensor& sum(size_t unit) const { return units_[unit].sum; }
  void drop();

 private:
  struct Unit {
    FlatLayout layout;
    torch::Tensor full;         ///< [layout.total], while gradients arrive and until they are reduced
    std::vector<bool> arrived;  ///< per layout item, since the last reduction
    size_t missing = 0;         ///< items whose gradient has not come in this micro-batch
    torch::Tensor reduced;      ///< [layout.shard], reduce dtype: result of a reduction in flight
    c10::intrusive_ptr<c10d::Work> work;
    torch::Tensor sum;
    StreamMark sum_there;  ///< when its copy to host memory has ended
  };
  /// A micro-batch's sum on its way to host memory, to be added to those before it.
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
  std::optional<Transfers> to_host_;  ///< where sums wait in host memory
  std::vector<Unit> units_;
  bool reduces_ = true;
  std::optional<size_t> in_flight_;
  std::optional<Addend> addend_;  ///< one at a time, which bounds memory
};

}  // namespace runner
