// The gradients of a plan's units on one rank: flat buffers to which gradients are added, and their sums over ranks.
//
// With an offloaded optimizer the sums are copied to host memory on a side stream, overlapped with backward. The host waits for a
// copy before it adds to the sum, and for all copies in finish().
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

#include "runner/base/error.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/adascale.hpp"
#include "strategies/contract/dtype.hpp"
#include "strategies/contract/piece_norms.hpp"
#include "strategies/contract/reducer.hpp"
#include "strategies/contract/transfers.hpp"
#include "strategies/executor/bound_mesh.hpp"
#include "strategies/program/program.hpp"

namespace runner {

class GradientReduction {
 public:
  /// `layouts`: one for each unit of the model's plan. Gradients arrive on `device`. Their sums stay there until the update, or in host
  /// memory if the plan offloads the optimizer. `reducer` is set if the plan has its own.
  GradientReduction(const ModelSpec& model, const ParallelPlan& plan, BoundMesh mesh, std::vector<FlatLayout> layouts,
                    torch::Device device, std::shared_ptr<Reducer> reducer = {})
      : plan_(plan),
        mesh_(std::move(mesh)),
        device_(device),
        reducer_(std::move(reducer)),
        takes_(plan.takes_gradients()),
        trained_(trained_units(plan)) {
    if (plan_.separate_host && plan_.optimizer != Tier::device) to_host_.emplace(device);
    const auto parameters = model.parameters();
    for (size_t u = 0; u < layouts.size(); ++u) {
      Unit unit;
      unit.layout = std::move(layouts[u]);
      unit.tensor_sum = tensor_sum(model, unit.layout);
      for (size_t i = 0; i < unit.layout.items.size(); ++i)
        if (is_tied(model, *parameters[unit.layout.items[i].slot])) unit.tied = i;
      const auto& items = unit.layout.items;
      unit.arrived.assign(items.size(), false);
      unit.taken.resize(items.size());
      for (size_t i = 0; i < items.size(); ++i) {
        places_.resize(std::max(places_.size(), items[i].slot + 1));
        places_[items[i].slot] = {u, i};
      }
      units_.push_back(std::move(unit));
    }
    size_t bucket = 0;
    for (size_t u : trained_ | std::views::reverse) units_[u].bucket = bucket++;
    if (reducer_) make_standing_buffers();
  }

  /// Adds the gradient of the parameter in `slot` to its unit's buffer. Calls no collective.
  void add(size_t slot, torch::Tensor gradient) {
    torch::NoGradGuard no_grad;
    const Place place = places_[slot];
    Unit& unit = units_[place.unit];
    if (takes_) return keep(unit, place.item, std::move(gradient));
    auto target = buffer_of(unit, place.item);
    if (unit.arrived[place.item])
      target.add_(gradient.reshape({-1}));
    else
      target.copy_(gradient.reshape({-1}));
    unit.arrived[place.item] = true;
  }

  /// Adds rows[i] [width] to row ids[i] of the gradient [n, width] of the parameter in `slot`.
  void add_rows(size_t slot, const torch::Tensor& ids, const torch::Tensor& rows) {
    torch::NoGradGuard no_grad;
    const Place place = places_[slot];
    Unit& unit = units_[place.unit];
    torch::Tensor target;
    if (takes_) {
      auto& taken = unit.taken[place.item];
      if (!taken.defined()) taken = torch::zeros({unit.layout.items[place.item].numel}, rows.options());
      target = taken;
    } else {
      target = buffer_of(unit, place.item);
      if (!unit.arrived[place.item]) target.zero_();
      unit.arrived[place.item] = true;
    }
    target.view({-1, rows.size(1)}).index_add_(0, ids, rows.to(target.scalar_type()));
  }

  /// Start and end of the sum of a unit over the ranks of an axis (Op::start_reduce, Op::wait_reduce). Parameters without a
  /// gradient count as zeros. The unit's buffer is freed at the end of the last sum.
  void start_reduce(size_t u, Axis axis) {
    torch::NoGradGuard no_grad;
    Unit& unit = units_[u];
    if (axis == Axis::tensor) return start_tensor_sum(unit);
    if (axis == Axis::pipeline) return start_tied_sum(unit);
    if (reducer_) {
      zero_gaps(unit);  // a script may have written to them
      complete(unit);
      reducer_->begin(unit.bucket);
      return;
    }
    begin_reduction(unit);
    std::vector<at::Tensor> tensors{unit.full};
    if (axis == Axis::none || (axis == Axis::replicate && plan_.shards() == 1)) unit.reduced = unit.full;
    if (axis == Axis::replicate) {
      tensors = {unit.reduced};
      unit.work = mesh_.group(axis).allreduce(tensors, {c10d::ReduceOp::SUM});
    } else if (axis == Axis::shard && plan_.reduce_by_all_reduce) {
      unit.work = mesh_.group(axis).allreduce(tensors, {c10d::ReduceOp::SUM});
    } else if (axis == Axis::shard) {
      unit.reduced = torch::empty({unit.layout.shard}, unit.full.options());
      unit.work = mesh_.group(axis)._reduce_scatter_base(unit.reduced, unit.full, {c10d::ReduceOp::SUM});
    }
  }

  void wait_reduce(size_t u, Axis axis) {
    torch::NoGradGuard no_grad;
    Unit& unit = units_[u];
    if (axis == Axis::tensor) return wait_tensor_sum(unit);
    if (axis == Axis::pipeline) return wait_tied_sum(unit);
    if (reducer_) {
      reducer_->finish(unit.bucket);
      return;
    }
    take_sums(unit);
    if (axis == Axis::shard && plan_.copies() > 1) return;  // the sum over the copies follows
    auto sum = unit.reduced.to(scalar_type(plan_.gradient));
    unit.reduced.reset();
    unit.full.reset();
    unit.reducing = false;
    unit.arrived.assign(unit.layout.items.size(), false);
    if (plan_.predivide != 1.0) sum.mul_(plan_.predivide);
    if (to_host_)
      move_to_host(u, sum);
    else if (unit.sum.defined())
      unit.sum.add_(sum);
    else
      unit.sum = sum;
  }

  /// Waits for the copies to the host.
  void finish() {
    add_on_host();
    torch::NoGradGuard no_grad;
    for (size_t u : trained_) {
      Unit& unit = units_[u];
      std::exchange(unit.sum_there, {}).wait_on_host();
      for (size_t i = 0; takes_ && i < unit.taken.size(); ++i) summed_part(unit, i);  // makes missing ones
    }
  }

  /// Elements [begin, begin + count) of the unit's shard of the sums, in the plan's gradient dtype. They belong to one parameter.
  /// Valid after finish().
  torch::Tensor sum(size_t u, int64_t begin, int64_t count) const {
    const Unit& unit = units_[u];
    if (reducer_ && !unit.sum.defined()) return unit.full.narrow(0, begin, count);
    if (!takes_) return unit.sum.narrow(0, begin, count);
    const auto& items = unit.layout.items;
    const auto item = std::ranges::find(items, begin, &FlatLayout::Item::offset);
    RUNNER_CHECK(item != items.end() && item->numel == count, "gradients are kept by parameter");
    return unit.taken[static_cast<size_t>(item - items.begin())];
  }

  /// From here on, adds up the squares of this rank's gradients before they are reduced.
  void measure_own() { measures_ = true; }
  /// Since the last call. Waits for the device.
  OwnSquares take_own_squares() {
    const auto sum = std::exchange(own_squares_, {});
    return {.sum = sum.defined() ? sum.item<double>() : 0, .gradients = std::exchange(own_gradients_, 0)};
  }

  /// Frees all gradients, except those of a Reducer.
  void drop() {
    for (auto& unit : units_) {
      if (!reducer_) {
        unit.sum.reset();
        unit.full.reset();
      }
      unit.reducing = false;
      unit.arrived.assign(unit.layout.items.size(), false);
      for (auto& gradient : unit.taken) gradient.reset();
    }
  }

  /// The buffers of a Reducer's unit: this rank's gradients, and its shard of the sums (undefined if it has all of them).
  const torch::Tensor& gradients(size_t unit) const { return units_[unit].full; }
  const torch::Tensor& shard(size_t unit) const { return units_[unit].sum; }

 private:
  struct Unit {
    FlatLayout layout;
    torch::Tensor full;         ///< [layout.total], from the first gradient until the reduction has ended
    size_t bucket = 0;          ///< of the Reducer, if there is one
    std::vector<bool> arrived;  ///< for each layout item, since the last reduction
    bool reducing = false;      ///< `full` is complete, in the reduce dtype
    TensorSum tensor_sum;
    std::optional<size_t> tied = {};  ///< item of the layout that another stage has, too
    torch::Tensor message;            ///< of the sum over the tensor axis in flight
    torch::Tensor reduced;            ///< [layout.shard], reduce dtype: result of a reduction in flight
    c10::intrusive_ptr<c10d::Work> work;
    torch::Tensor sum;
    StreamMark sum_there;              ///< end of the copy of `sum` to host memory
    std::vector<torch::Tensor> taken;  ///< for each layout item, if gradients are kept as they are: 1-d
  };
  /// The sum of one micro-batch that is being copied to host memory. It is then added to Unit::sum.
  struct Addend {
    size_t unit;
    torch::Tensor values;
    StreamMark there;
  };

  /// The gradient of a parameter, 1-d: its part of the unit's buffer, which is made if it does not exist.
  torch::Tensor buffer_of(Unit& unit, size_t item) {
    if (!unit.full.defined()) make_buffer(unit);
    const auto& place = unit.layout.items[item];
    return unit.full.narrow(0, place.offset, place.numel);
  }

  /// Keeps the tensor that autograd has computed, unless something else uses it.
  void keep(Unit& unit, size_t item, torch::Tensor gradient) {
    auto& taken = unit.taken[item];
    if (taken.defined()) {
      taken.add_(gradient.reshape({-1}));
      return;
    }
    const bool alone = gradient.use_count() == 1 && gradient.is_contiguous();
    taken = (alone ? gradient : gradient.clone(at::MemoryFormat::Contiguous)).view({-1});
  }

  /// Sets missing gradients to zero, and casts.
  void begin_reduction(Unit& unit) {
    if (std::exchange(unit.reducing, true)) return;
    complete(unit);
    if (measures_) measure(unit);
    if (plan_.predivide != 1.0) unit.full.div_(plan_.predivide);
    unit.full = unit.full.to(scalar_type(plan_.reduce));
  }

  void measure(const Unit& unit) {
    const auto square = piece_norms({unit.full}).to(torch::kFloat64).square().sum();
    own_squares_ = own_squares_.defined() ? own_squares_ + square : square;
    if (&unit == &units_[trained_.front()]) ++own_gradients_;
  }

  /// The gradient of a parameter, 1-d: in the unit's buffer, or the tensor that is kept.
  torch::Tensor summed_part(Unit& unit, size_t item) {
    const auto& place = unit.layout.items[item];
    if (!takes_) return unit.full.narrow(0, place.offset, place.numel);
    auto& taken = unit.taken[item];
    if (!taken.defined())
      taken = torch::zeros({place.numel}, torch::dtype(scalar_type(plan_.gradient)).device(device_));
    return taken;
  }

  void start_tensor_sum(Unit& unit) {
    const auto& sum = unit.tensor_sum;
    if (!takes_) begin_reduction(unit);
    if (!takes_ && sum.in_place) {
      unit.message = unit.full.narrow(0, 0, sum.elements);
    } else {
      unit.message = torch::zeros({sum.elements}, torch::dtype(scalar_type(plan_.reduce)).device(device_));
      for (const auto& [item, begin] : sum.parts) {
        const auto part = summed_part(unit, item);
        unit.message.narrow(0, begin, part.numel()).copy_(part);
      }
    }
    std::vector<at::Tensor> tensors{unit.message};
    unit.work = mesh_.group(Axis::tensor).allreduce(tensors, {c10d::ReduceOp::SUM});
  }

  void wait_tensor_sum(Unit& unit) {
    std::exchange(unit.work, {})->wait();
    const auto message = std::exchange(unit.message, {});
    if (!takes_ && unit.tensor_sum.in_place) return;
    for (const auto& [item, begin] : unit.tensor_sum.parts) {
      const auto part = summed_part(unit, item);
      part.copy_(message.narrow(0, begin, part.numel()));
    }
  }

  void start_tied_sum(Unit& unit) {
    if (!takes_) begin_reduction(unit);
    std::vector<at::Tensor> tensors{summed_part(unit, unit.tied.value())};
    unit.work = mesh_.tied->allreduce(tensors, {c10d::ReduceOp::SUM});
  }

  void wait_tied_sum(Unit& unit) { std::exchange(unit.work, {})->wait(); }

  void make_standing_buffers() {
    const auto options = torch::dtype(scalar_type(plan_.gradient)).device(device_);
    for (size_t u : trained_) {
      Unit& unit = units_[u];
      unit.full = torch::zeros({unit.layout.total}, options);
      if (unit.layout.shard < unit.layout.total) unit.sum = torch::zeros({unit.layout.shard}, options);
    }
  }

  void make_buffer(Unit& unit) {
    unit.full = torch::empty({unit.layout.total}, torch::dtype(scalar_type(plan_.accumulate)).device(device_));
    zero_gaps(unit);
  }

  void zero_gaps(Unit& unit) {
    const auto& items = unit.layout.items;
    for (size_t i = 0; i < items.size(); ++i) {
      int64_t end = items[i].offset + items[i].numel;
      int64_t next = i + 1 < items.size() ? items[i + 1].offset : unit.layout.total;
      if (next > end) unit.full.narrow(0, end, next - end).zero_();
    }
  }

  /// Sets missing gradients to zero.
  void complete(Unit& unit) {
    if (!unit.full.defined()) make_buffer(unit);
    const auto& items = unit.layout.items;
    for (size_t i = 0; i < items.size(); ++i)
      if (!unit.arrived[i]) unit.full.narrow(0, items[i].offset, items[i].numel).zero_();
  }

  /// Waits for the unit's collective and sets `reduced` to this rank's sums.
  void take_sums(Unit& unit) {
    if (unit.work) unit.work->wait();
    unit.work.reset();
    if (!unit.reduced.defined())
      unit.reduced = unit.full.narrow(0, mesh_.coordinate(Axis::shard) * unit.layout.shard, unit.layout.shard).clone();
  }

  /// The device keeps the memory of a sum until its copy has ended. If copies are slower than backward, the host waits here, so
  /// at most one such sum exists beside the unit that is being reduced. Not inlined, as BackgroundUpdate::wait_all().
  [[gnu::noinline]] void move_to_host(size_t u, const torch::Tensor& sum) {
    if (last_moved_) units_[*last_moved_].sum_there.wait_on_host();
    last_moved_ = u;
    Unit& unit = units_[u];
    bool adds = unit.sum.defined();
    if (adds) add_on_host();
    auto values = torch::empty(sum.sizes(), sum.options().device(torch::kCPU).pinned_memory(plan_.pin_memory));
    to_host_->follow_current();
    auto there = to_host_->copy(values, sum);
    if (adds) {
      addend_ = Addend{.unit = u, .values = values, .there = std::move(there)};
    } else {
      unit.sum = values;
      unit.sum_there = std::move(there);
    }
  }

  void add_on_host() {
    if (!addend_) return;
    torch::NoGradGuard no_grad;
    Unit& unit = units_[addend_->unit];
    addend_->there.wait_on_host();  // the copy of unit.sum was before it on the same stream
    unit.sum_there = {};
    unit.sum.add_(addend_->values);
    addend_.reset();
  }

  ParallelPlan plan_;
  BoundMesh mesh_;
  torch::Device device_;
  std::shared_ptr<Reducer> reducer_;
  bool takes_;  ///< ParallelPlan::takes_gradients()
  bool measures_ = false;
  torch::Tensor own_squares_;         ///< their sum, a scalar on the device; undefined: 0
  int64_t own_gradients_ = 0;         ///< of each parameter
  std::vector<size_t> trained_;       ///< trained_units()
  std::optional<Transfers> to_host_;  ///< set if sums are kept in host memory
  std::vector<Unit> units_;
  struct Place {
    size_t unit = 0, item = 0;
  };
  std::vector<Place> places_;         ///< of each parameter
  std::optional<Addend> addend_;      ///< only one at a time, to bound memory
  std::optional<size_t> last_moved_;  ///< the unit whose sum was copied to the host last
};

}  // namespace runner
