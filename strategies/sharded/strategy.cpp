// Executes a ShardPlan: decides when units are gathered and released, and when their gradients are reduced.
//
// A unit's parameters are views of one flat buffer. Its storage is empty except while the unit is in use. A gather moves new
// memory into the same StorageImpl, so the leaf tensors, and the tensors that autograd saved, become valid again. Each rank
// stores 1/shards of the flat buffer, of its gradients (reduction.hpp) and of its optimizer state. The buffer of a resident unit
// is never emptied: its shards are gathered after each update.
//
// With offload the update runs in host memory. Optimizer state, masters and the shards that gathers send may be in a file on
// NVMe. On CUDA without NVMe, the update runs in a separate thread (background_update.hpp): a step ends when its update has
// started, the next forward waits for each unit before it uses it, and all other readers of the training state wait for all
// units. Otherwise the update ends within the step: the file is streamed in one fixed order, and on CPU the same cores would
// compute forward and update.
// Source: Zhao et al., PyTorch FSDP (VLDB 2023); Rajbhandari et al., ZeRO (SC 2020), ZeRO-Infinity (SC 2021); Ren et al.,
// ZeRO-Offload (ATC 2021).
#include "strategies/sharded/strategy.hpp"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include "runner/base/error.hpp"
#include "strategies/sharded/background_update.hpp"
#include "strategies/sharded/reduction.hpp"
#include "strategies/sharded/shard_store.hpp"

namespace runner {

namespace {

class Sharded : public Strategy {
 public:
  Sharded(StrategySetup setup, ShardPlan plan, ShardEvents events)
      : Strategy(std::move(setup)), plan_(std::move(plan)), events_(std::move(events)) {
    optimizer_.set_copied_elements(plan_.update_elements);
  }

  void module_to_device() override {
    groups_ = make_shard_groups(world_, plan_);
    unit_of_block_ = units_of_blocks(plan_, model_.blocks.size());
    ahead_in_forward_ = units_ahead(model_.spec, plan_, false);
    ahead_in_backward_ = units_ahead(model_.spec, plan_, true);
    store_.emplace(plan_, groups_, model_.spec, job_.precision.parameter, world_.device,
                   fmt::format("rank {}", world_.rank));
    if (const auto& swap = store_->optimizer_swap()) optimizer_.swap_to(*swap);
    std::vector<FlatLayout> layouts;
    for (size_t u = 0; u < store_->size(); ++u) {
      make_parameters(u);
      layouts.push_back((*store_)[u].layout);
    }
    reduction_.emplace(plan_, groups_, layouts, world_.device);
    resident_of_block_ = resident_units_of_blocks(model_.spec, plan_);
    spread(false);
    if (plan_.updates_beside()) make_background_update();
  }

  void state_loaded() override {
    settle();
    spread(false);
  }

  /// Frees everything first, and then throws the exception of the last update, if it failed.
  void teardown() override {
    std::exception_ptr error;
    try {
      settle();
    } catch (...) {
      error = std::current_exception();
    }
    update_.reset();
    reduction_.reset();
    store_.reset();
    if (error) std::rethrow_exception(error);
  }

 protected:
  void begin_micro_batch(bool last) override { reduction_->begin_micro_batch(last || plan_.reduce_every_micro_batch); }

  torch::Tensor run_block(size_t index, const torch::Tensor& x, const ForwardContext& context) override {
    size_t u = unit_of_block_[index];
    for (size_t resident : resident_of_block_[index]) spread_updated(resident);
    gather(u);
    store_->read_ahead(ahead_in_forward_[index]);
    if (plan_.prefetches && plan_.forward_prefetch && !updated_behind_)
      for (size_t ahead : ahead_in_forward_[index]) store_->start_gather(ahead);
    if (events_.forward_begins) events_.forward_begins(index);
    auto y = forward_block(index, x, context);
    if (y.requires_grad()) y.register_hook([this, index](const torch::Tensor&) { before_block_backward(index); });
    if (u == plan_.units.size()) return y;
    const ShardUnit& unit = plan_.units[u];
    if (unit.blocks.back() == index && !(unit.keep_after_forward && y.requires_grad())) store_->release(u);
    return y;
  }

  /// Forward has already waited for the units that it used. This call throws the exception of a failed update, and frees the
  /// update's gradients before the first new reduction.
  void before_backward(const torch::Tensor&) override {
    if (update_) update_->wait_all();
    updated_behind_ = false;
  }

  void end_micro_batch(bool) override {
    reduction_->end_micro_batch();
    for (size_t u = 0; u < store_->size(); ++u) store_->release(u);
  }

  std::vector<torch::Tensor> finish_gradients() override {
    reduction_->finish();
    std::vector<torch::Tensor> gradients;
    for (const auto& place : places_)
      gradients.push_back(reduction_->sum(place.unit).narrow(0, place.begin, place.length));
    return gradients;
  }

  bool counts_in_norm() const override { return groups_.replica == 0; }

  void update(std::vector<torch::Tensor> gradients, double lr_factor, double gradient_divisor) override {
    if (!update_) {
      // If it changes host memory, copies of the old values to the device have ended: kernels have used them, and
      // finish_gradients() has waited for the gradients of these kernels.
      optimizer_.step(gradients, lr_factor, gradient_divisor);
      return;
    }
    update_->start(std::move(gradients), lr_factor, gradient_divisor);
    updated_behind_ = true;
    for (size_t u = 0; u < store_->size(); ++u) to_spread_[u] = plan_.units[u].resident;
  }

  void settle() override {
    if (update_) update_->wait_all();
  }

  /// A skipped step changes no values. The values of a background update are gathered when a block uses them.
  void after_update(bool updated) override {
    reduction_->drop();
    if (updated && !update_) spread(true);
  }

  bool saves_whole() const override { return plan_.saves_whole; }

  /// Each replica writes an equal part of the elements that all replicas have.
  std::pair<int64_t, int64_t> write_range(const LocalParameter& parameter) const override {
    int64_t n = parameter.numel;
    return {n * groups_.replica / plan_.replicas, n * (groups_.replica + 1) / plan_.replicas};
  }

 private:
  /// The range of a local parameter in its unit's shard.
  struct Place {
    size_t unit;
    int64_t begin, length;
  };

  /// Registers this rank's shard of the unit with the optimizer, and puts the unsharded parameters into the model's slots.
  void make_parameters(size_t u) {
    Shard& shard = (*store_)[u];
    int64_t begin = groups_.position * shard.layout.shard, end = begin + shard.layout.shard;
    for (const auto& item : shard.layout.items) {
      int64_t from = std::max(begin, item.offset), to = std::min(end, item.offset + item.numel);
      if (from < to) make_local(u, item, from - begin, to - from);
    }
    auto specs = model_.spec.parameters();
    for (size_t i = 0; i < shard.layout.items.size(); ++i) {
      const auto& item = shard.layout.items[i];
      auto view = shard.full.narrow(0, item.offset, item.numel).view(specs[item.slot]->shape);
      model_.slots[item.slot] = view.variable_data().requires_grad_(true);  // with a separate version counter
      watch(u, i, model_.slots[item.slot]);
    }
    if (store_->has_own_copy() && !plan_.units[u].resident) empty_storage(shard.full);
  }

  /// Initializes elements [begin, begin + count) of the shard, which belong to `item`, and registers them with the optimizer.
  void make_local(size_t u, const FlatLayout::Item& item, int64_t begin, int64_t count) {
    Shard& shard = (*store_)[u];
    int64_t offset = groups_.position * shard.layout.shard + begin - item.offset;
    auto part = [&](const torch::Tensor& tensor) { return tensor.defined() ? tensor.narrow(0, begin, count) : tensor; };
    auto value = part(shard.local), copy = part(shard.written);
    if (value.defined()) {
      fill(item.slot, offset, value);
    } else {
      for (int64_t done = 0; done < count; done += ShardStore::piece) {
        auto values = torch::empty({std::min(ShardStore::piece, count - done)}, torch::kFloat32);
        fill(item.slot, offset + done, values);
        store_->write_master(u, begin + done, values);
      }
    }
    if (optimizer_.swap())
      add_swapped(item.slot, offset, shard.begin + begin, count, value, copy);
    else
      add_local(item.slot, offset, value, copy);
    places_.push_back({u, begin, count});
  }

  void make_background_update() {
    std::vector<BackgroundUpdate::Unit> units(store_->size());
    for (size_t u = 0; u < store_->size(); ++u) {
      const Shard& shard = (*store_)[u];
      if (shard.places.sent == ShardPlaces::Sent::master) continue;
      units[u].values = shard.written.defined() ? shard.written : shard.local;
      units[u].on_device = plan_.units[u].resident ? store_->own_part(shard) : shard.sent;
    }
    for (size_t i = places_.size(); i-- > 0;) {
      units[places_[i].unit].first = i;
      ++units[places_[i].unit].count;
    }
    update_ = std::make_unique<BackgroundUpdate>(optimizer_, world_.device, std::move(units),
                                                 units_in_forward(model_.spec, plan_),
                                                 fmt::format("the update of rank {}", world_.rank), events_);
  }

  /// Makes autograd call gradient_arrived() after it has accumulated into the gradient of `parameter`.
  void watch(size_t u, size_t item, const torch::Tensor& parameter) {
    auto node = torch::autograd::impl::grad_accumulator(parameter);
    node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [this, u, item](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
          gradient_arrived(u, item);
          return outputs;
        }));
    (*store_)[u].accumulators.push_back(std::move(node));
  }

  // ---- parameters
  void spread(bool updated) {
    to_spread_.assign(store_->size(), false);
    store_->spread(updated);
  }

  /// Gathers a resident unit if it was updated since the last gather; waits for the update of this rank's shard first. All ranks
  /// call this in the same order of units, because the order does not depend on which updates have ended.
  void spread_updated(size_t u) {
    if (!to_spread_[u]) return;
    to_spread_[u] = false;
    update_->wait(u);
    store_->gather_resident(u);
  }

  /// Waits for the unit's update first, so that the gather sends the new values. Gathers in advance need not wait, because
  /// they start after before_backward() has waited for all updates.
  void gather(size_t u) {
    if (updated_behind_ && store_->lacks(u)) update_->wait(u);
    store_->gather(u);
  }

  /// Called when the gradient of the output of block `index` is known, before the block's backward.
  void before_block_backward(size_t index) {
    size_t own = unit_of_block_[index];
    for (size_t u = 0; u < store_->size(); ++u)
      if (plan_.units[u].first_needed_in_backward > index && u != own) store_->release(u);
    if (own < store_->size() && plan_.units[own].first_needed_in_backward <= index)
      gather(own);
    else
      store_->release(own);
    store_->read_ahead(ahead_in_backward_[index]);
    if (plan_.backward_prefetch == ShardPlan::Prefetch::before) prefetch_in_backward(index);
  }

  void prefetch_in_backward(size_t index) {
    if (!plan_.prefetches) return;
    for (size_t ahead : ahead_in_backward_[index]) store_->start_gather(ahead);
  }

  // ---- gradients
  void gradient_arrived(size_t u, size_t item) {
    torch::NoGradGuard no_grad;
    auto& slot = model_.slots[(*store_)[u].layout.items[item].slot];
    if (!slot.grad().defined()) return;
    bool last = reduction_->arrived(u, item, slot.grad());
    slot.mutable_grad().reset();
    if (last && plan_.backward_prefetch == ShardPlan::Prefetch::after && !plan_.units[u].blocks.empty())
      prefetch_in_backward(plan_.units[u].blocks.front());
  }

  ShardPlan plan_;
  ShardEvents events_;
  ShardGroups groups_;
  std::optional<ShardStore> store_;
  std::optional<GradientReduction> reduction_;
  std::vector<size_t> unit_of_block_;
  std::vector<std::vector<size_t>> ahead_in_forward_, ahead_in_backward_;
  std::vector<Place> places_;
  // ---- where the update runs in the background
  std::vector<std::vector<size_t>> resident_of_block_;
  std::vector<bool> to_spread_;               ///< resident units that must be gathered because of an update
  bool updated_behind_ = false;               ///< no backward has started since the start of the last update
  std::unique_ptr<BackgroundUpdate> update_;  ///< last member, because its thread uses the others until it ends
};

}  // namespace

std::unique_ptr<Strategy> make_sharded(StrategySetup setup, ShardPlan plan, ShardEvents events) {
  return std::make_unique<Sharded>(std::move(setup), std::move(plan), std::move(events));
}

}  // namespace runner
