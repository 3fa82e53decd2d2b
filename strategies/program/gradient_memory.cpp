#include "strategies/program/gradient_memory.hpp"

#include <utility>

#include "strategies/program/tensor_sum.hpp"

namespace runner {

GradientMemory::GradientMemory(const Job& job, const ParallelPlan& plan, MemoryPeak& peak)
    : plan_(plan),
      peak_(peak),
      host_kernels_(job.accelerator.host_kernels),
      on_device_(!(plan.separate_host && plan.optimizer != Tier::device)),
      takes_(plan.takes_gradients()),
      in_place_(plan.shards() == 1 && plan.accumulate == plan.reduce && plan.reduce == plan.gradient && on_device_),
      unit_of_slot_(job.model->parameters().size()),
      added_(job.model->parameters().size()) {
  for (const auto& hook : plan.reducer.bytes) peak_.now.gradients += hook.kept + hook.unsaved;
  const auto parameters = job.model->parameters();
  for (const auto& unit : plan.units) {
    const auto layout = layout_of(parameters, plan, unit);
    const auto sum = tensor_sum(*job.model, layout);
    for (size_t slot : unit.slots) unit_of_slot_[slot] = units_.size();
    units_.push_back({.unsharded = layout.total * bytes_of(plan.accumulate),
                      .sent = layout.total * bytes_of(plan.reduce),
                      .shard = layout.shard,
                      .message = takes_ || !sum.in_place ? sum.elements * bytes_of(plan.reduce) : 0});
    if (plan.own_reducer && !unit.frozen)  // all gradients, and this rank's part of the sums
      peak_.now.gradients += (layout.total + (is_sharded(plan_, unit) ? layout.shard : 0)) * bytes_of(plan_.gradient);
  }
}

void GradientMemory::begin_micro_batch() {
  end_backward();
  for (auto& unit : units_) unit.adds = unit.arriving && !unit.reducing;
}

void GradientMemory::end_backward() { peak_.now.communication -= std::exchange(moving_to_host_, 0); }

void GradientMemory::computed(size_t slot, int64_t elements) {
  auto& now = peak_.now;
  if (plan_.own_reducer) return;
  if (takes_) {
    if (!added_[slot]) now.gradients += elements * bytes_of(plan_.gradient);
    return;
  }
  Unit& unit = units_[unit_of_slot_[slot]];
  if (!unit.arriving) (in_place_ && !unit.reduced ? now.gradients : now.communication) += unit.unsharded;
  unit.arriving = true;
  now.communication += widened(unit, elements);
}

void GradientMemory::stored(size_t slot, int64_t elements) {
  peak_.now.communication -= widened(units_[unit_of_slot_[slot]], elements);
  added_[slot] = true;
}

/// Temporary bytes on CPU when a gradient is added to a buffer of a wider dtype: the gradient is converted first.
int64_t GradientMemory::widened(const Unit& unit, int64_t elements) const {
  if (takes_ || plan_.own_reducer || !unit.adds || !host_kernels_ || plan_.accumulate == plan_.parameter) return 0;
  return elements * bytes_of(plan_.accumulate);
}

void GradientMemory::start_reduce(size_t u, Axis axis) {
  Unit& unit = units_[u];
  if (axis == Axis::tensor) return start_tensor_sum(unit);
  if (axis == Axis::pipeline) {  // the parameter's place in the buffer, or the tensor that is kept
    if (!takes_) begin_reduction(unit);
    return;
  }
  if (plan_.own_reducer) return start_hook(u);
  if (axis == Axis::replicate && plan_.shards() > 1) return;
  begin_reduction(unit);
  if (in_place_) return;
  peak_.now.communication += on_the_way(unit);
  peak_.note();
}

void GradientMemory::start_hook(size_t u) {
  if (plan_.reducer.bytes.empty()) return;  // a Lua file
  const auto& hook = plan_.reducer.bytes[u];
  peak_.now.communication += hook.held + hook.start;
  peak_.note();
  peak_.now.communication -= hook.start;
}

void GradientMemory::finish_hook(size_t u) {
  if (plan_.reducer.bytes.empty()) return;
  const auto& hook = plan_.reducer.bytes[u];
  peak_.now.communication += hook.finish;
  peak_.note();
  peak_.now.communication -= hook.finish + hook.held;
}

/// Counts the unsharded gradients in the dtype of accumulation, then in that of reduction.
void GradientMemory::begin_reduction(Unit& unit) {
  if (std::exchange(unit.reducing, true) || plan_.accumulate == plan_.reduce) return;
  peak_.now.communication += unit.sent;
  peak_.note();
  peak_.now.communication -= unit.unsharded;
}

/// The message exists beside the gradients, unless it is a part of their buffer.
void GradientMemory::start_tensor_sum(Unit& unit) {
  if (!takes_) begin_reduction(unit);
  peak_.now.communication += unit.message;
  peak_.note();
}

void GradientMemory::wait_reduce(size_t u, Axis axis) {
  Unit& unit = units_[u];
  if (axis == Axis::pipeline) return;
  if (axis == Axis::tensor)
    peak_.now.communication -= unit.message;
  else if (plan_.own_reducer)
    finish_hook(u);
  else if ((axis != Axis::shard || plan_.copies() == 1))
    end_reduction(unit);
}

/// At the end of a reduction the unsharded gradients and their sums exist, and the sums in the dtype in which they are kept.
void GradientMemory::end_reduction(Unit& unit) {
  auto& now = peak_.now;
  unit.arriving = unit.reducing = false;
  if (in_place_) {
    if (unit.reduced) now.communication -= unit.unsharded;
    unit.reduced = true;
    return;
  }
  const int64_t waiting = unit.shard * bytes_of(plan_.gradient), cast = plan_.reduce != plan_.gradient ? waiting : 0;
  now.communication += cast;
  peak_.note();
  now.communication -= cast + on_the_way(unit) + unit.sent;
  if (!on_device_) now.communication += waiting - std::exchange(moving_to_host_, waiting);
  if (!unit.reduced && on_device_) now.gradients += waiting;
  unit.reduced = true;
}

}  // namespace runner
