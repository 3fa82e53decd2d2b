#include "strategies/sharded/reduction.hpp"

#include <utility>

#include "strategies/contract/dtype.hpp"

namespace runner {

GradientReduction::GradientReduction(const ShardPlan& plan, ShardGroups groups, std::vector<FlatLayout> layouts,
                                     torch::Device device)
    : plan_(plan), groups_(std::move(groups)), device_(device) {
  if (plan_.separate_host && plan_.optimizer != Tier::device) to_host_.emplace(device);
  for (auto& layout : layouts) {
    Unit unit;
    unit.arrived.assign(layout.items.size(), false);
    unit.layout = std::move(layout);
    units_.push_back(std::move(unit));
  }
}

void GradientReduction::begin_micro_batch(bool reduces) {
  reduces_ = reduces;
  for (auto& unit : units_) unit.missing = unit.layout.items.size();
}

bool GradientReduction::arrived(size_t u, size_t item, const torch::Tensor& gradient) {
  // A reduction of the previous micro-batch may be in flight. It reads the buffer, and its end frees the buffer.
  if (in_flight_ == u) finish_reduction();
  Unit& unit = units_[u];
  store(unit, item, gradient);
  if (--unit.missing > 0) return false;
  if (reduces_) reduce(u);
  return true;
}

void GradientReduction::end_micro_batch() {
  for (size_t u = units_.size(); u-- > 0;)
    if (units_[u].missing > 0 && reduces_) reduce(u);
}

void GradientReduction::finish() {
  if (in_flight_) finish_reduction();
  add_on_host();
  for (auto& unit : units_) std::exchange(unit.sum_there, {}).wait_on_host();
}

void GradientReduction::drop() {
  for (auto& unit : units_) {
    unit.sum.reset();
    unit.full.reset();
    unit.arrived.assign(unit.layout.items.size(), false);
  }
}

void GradientReduction::make_buffer(Unit& unit) {
  unit.full = torch::empty({unit.layout.total}, torch::dtype(scalar_type(plan_.accumulate)).device(device_));
  const auto& items = unit.layout.items;
  for (size_t i = 0; i < items.size(); ++i) {  // zeros in the gaps between items
    int64_t end = items[i].offset + items[i].numel;
    int64_t next = i + 1 < items.size() ? items[i + 1].offset : unit.layout.total;
    if (next > end) unit.full.narrow(0, end, next - end).zero_();
  }
}

void GradientReduction::store(Unit& unit, size_t item, const torch::Tensor& gradient) {
  if (!unit.full.defined()) make_buffer(unit);
  const auto& place = unit.layout.items[item];
  auto target = unit.full.narrow(0, place.offset, place.numel);
  if (unit.arrived[item])
    target.add_(gradient.reshape({-1}));
  else
    target.copy_(gradient.reshape({-1}));
  unit.arrived[item] = true;
}

/// Sets missing gradients to zero.
void GradientReduction::complete(Unit& unit) {
  if (!unit.full.defined()) make_buffer(unit);
  const auto& items = unit.layout.items;
  for (size_t i = 0; i < items.size(); ++i)
    if (!unit.arrived[i]) unit.full.narrow(0, items[i].offset, items[i].numel).zero_();
}

void GradientReduction::reduce(size_t u) {
  if (in_flight_) finish_reduction();
  torch::NoGradGuard no_grad;
  Unit& unit = units_[u];
  complete(unit);
  unit.missing = 0;
  if (plan_.predivide != 1.0) unit.full.div_(plan_.predivide);
  unit.full = unit.full.to(scalar_type(plan_.reduce));
  if (plan_.shards > 1 && plan_.reduce_by_all_reduce) {
    std::vector<at::Tensor> tensors{unit.full};
    unit.work = groups_.shards->allreduce(tensors, {c10d::ReduceOp::SUM});
  } else if (plan_.shards > 1) {
    unit.reduced = torch::empty({unit.layout.shard}, unit.full.options());
    unit.work = groups_.shards->_reduce_scatter_base(unit.reduced, unit.full, {c10d::ReduceOp::SUM});
  } else {
    unit.reduced = unit.full;
  }
  if (plan_.replicas > 1) {
    take_sums(unit);
    std::vector<at::Tensor> tensors{unit.reduced};
    unit.work = groups_.replicas->allreduce(tensors, {c10d::ReduceOp::SUM});
  }
  in_flight_ = u;
  if (!plan_.overlap) finish_reduction();
}

/// Waits for the unit's collective and sets `reduced` to this rank's sums.
void GradientReduction::take_sums(Unit& unit) {
  if (unit.work) unit.work->wait();
  unit.work.reset();
  if (!unit.reduced.defined())
    unit.reduced = unit.full.narrow(0, groups_.position * unit.layout.shard, unit.layout.shard).clone();
}

void GradientReduction::finish_reduction() {
  torch::NoGradGuard no_grad;
  size_t u = *in_flight_;
  Unit& unit = units_[u];
  in_flight_.reset();
  take_sums(unit);
  auto sum = unit.reduced.to(scalar_type(plan_.gradient));
  unit.reduced.reset();
  unit.full.reset();
  unit.arrived.assign(unit.layout.items.size(), false);
  if (plan_.predivide != 1.0) sum.mul_(plan_.predivide);
  if (to_host_)
    move_to_host(u, sum);
  else if (unit.sum.defined())
    unit.sum.add_(sum);
  else
    unit.sum = sum;
}

void GradientReduction::move_to_host(size_t u, const torch::Tensor& sum) {
  Unit& unit = units_[u];
  bool adds = unit.sum.defined();
  if (adds) add_on_host();
  auto values = torch::empty(sum.sizes(), sum.options().device(torch::kCPU).pinned_memory(plan_.pin_memory));
  to_host_->follow_current();
  auto there = to_host_->copy(values, sum);
  if (adds) {
    addend_ = Addend{u, values, std::move(there)};
  } else {
    unit.sum = values;
    unit.sum_there = std::move(there);
  }
}

void GradientReduction::add_on_host() {
  if (!addend_) return;
  torch::NoGradGuard no_grad;
  Unit& unit = units_[addend_->unit];
  addend_->there.wait_on_host();  // the copy of unit.sum was before it on the same stream
  unit.sum_there = {};
  unit.sum.add_(addend_->values);
  addend_.reset();
}

}  // namespace runner
