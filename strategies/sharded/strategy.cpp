// Gathers and releases of flat storages, and where their shards wait.
//
// A unit's parameters are views of one flat buffer whose storage is empty except while the unit is used: gathering
// fills it and hands its memory to the same StorageImpl, so the leaf tensors, and whatever autograd saved of them,
// become valid again. Each rank keeps 1/shards of the flat buffer, its gradients (reduction.hpp) and its optimizer
// state. A resident unit's buffer is never emptied: its shards are gathered after each update. With offload the
// optimizer works in host memory, its state and masters may be in a file on NVMe, and so may the shards that gathers
// send. In host memory beside a device it works in a thread of its own (background_update.hpp): a step ends when its
// update has begun, the next forward waits for each unit as it comes to it, and whatever else reads the training state
// waits for all. With NVMe, and where there is no device, the update is over when the step is: a pass through the file
// has one order, and cores that compute the forward gain nothing from a second thread. Source: Zhao et al., PyTorch
// FSDP (VLDB 2023); Rajbhandari et al., ZeRO (SC 2020), ZeRO-Infinity (SC 2021); Ren et al., ZeRO-Offload (ATC 2021).
#include "strategies/sharded/strategy.hpp"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include "runner/base/error.hpp"
#include "strategies/contract/dtype.hpp"
#include "strategies/sharded/background_update.hpp"
#include "strategies/sharded/reduction.hpp"
#include "strategies/sharded/shard.hpp"

namespace runner {

namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

class Sharded : public Strategy {
 public:
  Sharded(StrategySetup setup, ShardPlan plan, ShardEvents events)
      : Strategy(std::move(setup)), plan_(std::move(plan)), events_(std::move(events)) {
    own_copy_ = plan_.own_copy(job_.precision.parameter);
    host_ = plan_.optimizer != Tier::device ? torch::Device(torch::kCPU) : world_.device;
    prefetches_ = world_.device.is_cuda();  // on CPU a gather runs in the thread that asks for it
    optimizer_.set_copied_elements(plan_.update_elements);
  }

  void module_to_device() override {
    groups_ = make_shard_groups(world_, plan_);
    unit_of_block_ = units_of_blocks(plan_, model_.blocks.size());
    ahead_in_forward_ = units_ahead(model_.spec, plan_, false);
    ahead_in_backward_ = units_ahead(model_.spec, plan_, true);
    shards_.resize(plan_.units.size());
    make_file();
    for (size_t u = 0; u < plan_.units.size(); ++u) make_shard(u);
    std::vector<FlatLayout> layouts;
    for (const auto& shard : shards_) layouts.push_back(shard.layout);
    reduction_.emplace(plan_, groups_, layouts, world_.device);
    resident_of_block_ = resident_units_of_blocks(model_.spec, plan_);
    spread(false);
    if (plan_.updates_beside()) make_background_update();
  }

  void state_loaded() override {
    settle();
    spread(false);
  }

  /// What the last update threw is thrown after all has been let go.
  void teardown() override {
    std::exception_ptr error;
    try {
      settle();
    } catch (...) {
      error = std::current_exception();
    }
    update_.reset();
    reduction_.reset();
    shards_.clear();
    if (error) std::rethrow_exception(error);
  }

 protected:
  void begin_micro_batch(bool last) override { reduction_->begin_micro_batch(last || plan_.reduce_every_micro_batch); }

  torch::Tensor run_block(size_t index, const torch::Tensor& x, const ForwardContext& context) override {
    size_t u = unit_of_block_[index];
    for (size_t resident : resident_of_block_[index]) spread_updated(resident);
    gather(u);
    read_ahead(ahead_in_forward_[index]);
    if (prefetches_ && plan_.forward_prefetch && !updated_behind_)
      for (size_t ahead : ahead_in_forward_[index]) start_gather(ahead);
    if (events_.forward_begins) events_.forward_begins(index);
    auto y = forward_block(index, x, context);
    if (y.requires_grad()) y.register_hook([this, index](const torch::Tensor&) { before_block_backward(index); });
    if (u == plan_.units.size()) return y;
    const ShardUnit& unit = plan_.units[u];
    if (unit.blocks.back() == index && !(unit.keep_after_forward && y.requires_grad())) release(u);
    return y;
  }

  /// Forward has waited for every unit by then; here an update's error comes out at the latest, and its gradients are
  /// gone before the first new one is reduced.
  void before_backward(const torch::Tensor&) override {
    if (update_) update_->wait_all();
    updated_behind_ = false;
  }

  void end_micro_batch(bool) override {
    reduction_->end_micro_batch();
    for (size_t u = 0; u < shards_.size(); ++u) release(u);
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
      // The device's copies from host memory have read what the host writes now.
      if (plan_.optimizer != Tier::device) StreamMark::now(world_.device).wait_on_host();
      optimizer_.step(gradients, lr_factor, gradient_divisor);
      return;
    }
    update_->start(std::move(gradients), lr_factor, gradient_divisor);
    updated_behind_ = true;
    for (size_t u = 0; u < shards_.size(); ++u) to_spread_[u] = plan_.units[u].resident;
  }

  void settle() override {
    if (update_) update_->wait_all();
  }

  /// A step that was skipped has written nothing that could be spread; what a background update writes is spread when
  /// it is used.
  void after_update(bool updated) override {
    reduction_->drop();
    if (updated && !update_) spread(true);
  }

  bool saves_whole() const override { return plan_.saves_whole; }

  /// Replicas share the writing of what they hold in common.
  std::pair<int64_t, int64_t> write_range(const LocalParameter& parameter) const override {
    int64_t n = parameter.numel;
    return {n * groups_.replica / plan_.replicas, n * (groups_.replica + 1) / plan_.replicas};
  }

 private:
  /// Where a local parameter lies in its unit's shard.
  struct Place {
    size_t unit;
    int64_t begin, length;
  };

  /// Lays the units' shards out in the arrays of this rank's file, if some tier is NVMe.
  void make_file() {
    for (size_t u = 0; u < shards_.size(); ++u) {
      Shard& shard = shards_[u];
      shard.layout = make_flat_layout(model_.spec, plan_.units[u].slots, plan_.shards);
      shard.places = plan_.places(plan_.units[u], job_.precision.parameter);
    }
    auto use = plan_.swap_use(job_.precision.parameter);
    if (!use.any()) return;
    int64_t elements = 0;
    for (auto& shard : shards_) {
      shard.begin = elements;
      elements += SwappedArrays::whole_units(shard.layout.shard);  // each begins where a read may begin
    }
    std::vector<SwappedArrays::Array> arrays;
    auto add = [&](const char* name, int64_t bytes) {
      arrays.push_back({name, static_cast<int>(bytes)});
      return arrays.size() - 1;
    };
    OptimizerSwap swap;
    swap.buffers = plan_.swap.update_buffers;
    if (use.state) {
      swap.exp_avg = add("exp_avg", bytes_of(DType::float32));
      swap.exp_avg_sq = add("exp_avg_sq", bytes_of(DType::float32));
    }
    if (use.master) swap.parameter = add("parameter", bytes_of(DType::float32));
    if (use.sent) swap.copy = add("sent", bytes_of(plan_.parameter));
    swap.copy_dtype = plan_.parameter;
    SwapOptions options{plan_.swap.folder, plan_.swap.block_size, plan_.swap.queue_depth, plan_.swap.threads,
                        "rank " + std::to_string(world_.rank)};
    swap.file = file_ = std::make_shared<SwappedArrays>(options, arrays, elements, plan_.swap.tile);
    master_array_ = swap.parameter;
    sent_array_ = swap.copy ? swap.copy : swap.parameter;
    if (use.state) optimizer_.swap_to(swap);
  }

  void make_shard(size_t u) {
    place_storage(u);
    Shard& shard = shards_[u];
    int64_t begin = groups_.position * shard.layout.shard, end = begin + shard.layout.shard;
    for (const auto& item : shard.layout.items) {
      int64_t from = std::max(begin, item.offset), to = std::min(end, item.offset + item.numel);
      if (from < to) make_local(u, item, from - begin, to - from);
    }
    auto specs = model_.spec.parameters();
    for (size_t i = 0; i < shard.layout.items.size(); ++i) {
      const auto& item = shard.layout.items[i];
      auto view = shard.full.narrow(0, item.offset, item.numel).view(specs[item.slot]->shape);
      model_.slots[item.slot] = view.variable_data().requires_grad_(true);  // a version counter of its own
      watch(u, i, model_.slots[item.slot]);
    }
    if (own_copy_ && !plan_.units[u].resident) empty_storage(shard.full);
  }

  /// Elements [begin, begin + count) of the shard are some of `item`'s: given their first values, and to the optimizer.
  void make_local(size_t u, const FlatLayout::Item& item, int64_t begin, int64_t count) {
    Shard& shard = shards_[u];
    int64_t offset = groups_.position * shard.layout.shard + begin - item.offset;
    auto part = [&](const torch::Tensor& tensor) { return tensor.defined() ? tensor.narrow(0, begin, count) : tensor; };
    auto value = part(shard.local), copy = part(shard.written);
    if (value.defined()) {
      fill(item.slot, offset, value);
    } else {
      for (int64_t done = 0; done < count; done += piece_) {
        auto values = torch::empty({std::min(piece_, count - done)}, torch::kFloat32);
        fill(item.slot, offset + done, values);
        file_->write(*master_array_, shard.begin + begin + done, values.numel(), values.data_ptr());
      }
    }
    if (optimizer_.swap())
      add_swapped(item.slot, offset, shard.begin + begin, count, value, copy);
    else
      add_local(item.slot, offset, value, copy);
    places_.push_back({u, begin, count});
  }

  void make_background_update() {
    std::vector<BackgroundUpdate::Unit> units(shards_.size());
    for (size_t u = 0; u < shards_.size(); ++u) {
      const Shard& shard = shards_[u];
      if (shard.places.sent == ShardPlaces::Sent::master) continue;
      units[u].values = shard.written.defined() ? shard.written : shard.local;
      units[u].on_device = plan_.units[u].resident ? own_part(shard, shard.full) : shard.sent;
    }
    for (size_t i = places_.size(); i-- > 0;) {
      units[places_[i].unit].first = i;
      ++units[places_[i].unit].count;
    }
    update_ = std::make_unique<BackgroundUpdate>(optimizer_, world_.device, std::move(units),
                                                 units_in_forward(model_.spec, plan_),
                                                 fmt::format("the update of rank {}", world_.rank), events_);
  }

  void place_storage(size_t u) {
    Shard& shard = shards_[u];
    const ShardUnit& unit = plan_.units[u];
    bool resident = unit.resident,
         on_device = shard.places.sent == ShardPlaces::Sent::whole || unit.shards == Tier::device;
    using Master = ShardPlaces::Master;
    using Sent = ShardPlaces::Sent;
    bool pinned = world_.device.is_cuda() && plan_.pin_memory;
    auto kept = torch::dtype(scalar_type(job_.precision.parameter)).device(host_);
    auto used = torch::dtype(scalar_type(plan_.parameter)).device(world_.device);
    auto beside = used.device(torch::kCPU).pinned_memory(pinned);
    if (host_.is_cpu()) kept = kept.pinned_memory(pinned);
    shard.gathered = resident || !own_copy_;
    if (!own_copy_) {
      shard.full = shard.local = torch::zeros({shard.layout.shard}, kept);
      return;
    }
    shard.full = resident ? torch::zeros({shard.layout.total}, used) : torch::empty({shard.layout.total}, used);
    if (shard.places.master == Master::whole) shard.local = own_part(shard, shard.full);
    if (shard.places.master == Master::memory) shard.local = torch::zeros({shard.layout.shard}, kept);
    if (shard.places.sent == Sent::memory) shard.sent = torch::zeros({shard.layout.shard}, on_device ? used : beside);
    if (shard.places.master == Master::whole || shard.places.sent == Sent::master || shard.places.sent == Sent::file)
      return;
    // The update casts its new values on the way, into what is sent where it can reach that.
    if (!plan_.separate_host || on_device == (plan_.optimizer == Tier::device))
      shard.written = shard.places.sent == Sent::whole ? own_part(shard, shard.full) : shard.sent;
    else if (plan_.written_apart(unit, job_.precision.parameter))
      shard.written = torch::zeros({shard.layout.shard}, beside);
  }

  torch::Tensor own_part(const Shard& shard, const torch::Tensor& full) const {
    return full.narrow(0, groups_.position * shard.layout.shard, shard.layout.shard);
  }

  /// Calls gradient_arrived when autograd has accumulated into `parameter`.
  void watch(size_t u, size_t item, const torch::Tensor& parameter) {
    auto node = torch::autograd::impl::grad_accumulator(parameter);
    node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [this, u, item](const torch::autograd::variable_list& outputs, const torch::autograd::variable_list&) {
          gradient_arrived(u, item);
          return outputs;
        }));
    shards_[u].accumulators.push_back(std::move(node));
  }

  // ---- parameters
  /// New values go from the masters to what gathers send, and from resident units to all ranks. `updated`: the
  /// optimizer made them just now.
  void spread(bool updated) {
    to_spread_.assign(shards_.size(), false);
    if (!own_copy_) return;
    torch::NoGradGuard no_grad;
    std::vector<Work> gathers;
    for (size_t u = 0; u < shards_.size(); ++u) {
      Shard& shard = shards_[u];
      RUNNER_CHECK(!shard.reading, "a shard was read ahead and not used");
      if (shard.places.sent == ShardPlaces::Sent::file) {
        if (sent_array_ != master_array_ && (!updated || shard.local.defined())) write_sent(shard);
      } else if (plan_.units[u].resident || shard.sent.defined()) {
        cast_master(shard, plan_.units[u].resident ? own_part(shard, shard.full) : shard.sent, updated);
      }
      if (plan_.units[u].resident && plan_.shards > 1) gather_resident(shard, gathers);
    }
    for (auto& gather : gathers) gather->wait();
  }

  /// A resident unit that an update has run for since it was last used: this rank's shard is awaited, and all ranks'
  /// are gathered. Ranks come here in the same order, whichever of their units are there.
  void spread_updated(size_t u) {
    if (!to_spread_[u]) return;
    to_spread_[u] = false;
    update_->wait(u);
    if (plan_.shards == 1) return;
    torch::NoGradGuard no_grad;
    std::vector<Work> gathers;
    gather_resident(shards_[u], gathers);
    for (auto& gather : gathers) gather->wait();
  }

  void gather_resident(Shard& shard, std::vector<Work>& gathers) {
    if (!plan_.gather_by_broadcast) {
      auto mine = own_part(shard, shard.full);
      gathers.push_back(groups_.shards->_allgather_base(shard.full, mine));
      return;
    }
    for (int owner = 0; owner < plan_.shards; ++owner) {
      std::vector<at::Tensor> part{shard.full.narrow(0, owner * shard.layout.shard, shard.layout.shard)};
      gathers.push_back(groups_.shards->broadcast(part, {.rootRank = owner}));
    }
  }

  /// Makes `target` what the master is.
  void cast_master(const Shard& shard, const torch::Tensor& target, bool updated) {
    if (shard.places.master == ShardPlaces::Master::whole) return;
    if (updated && shard.written.defined()) {
      if (!shard.written.is_alias_of(target)) target.copy_(shard.written);
    } else if (shard.local.defined()) {
      target.copy_(shard.local);
    } else {
      for_pieces(shard, [&](int64_t begin, const torch::Tensor& values) {
        target.narrow(0, begin, values.numel()).copy_(values);
      });
    }
  }

  /// The file's array of what is sent becomes what the master is.
  void write_sent(const Shard& shard) {
    for_pieces(shard, [&](int64_t begin, const torch::Tensor& values) {
      auto cast = values.to(scalar_type(plan_.parameter));
      file_->write(*sent_array_, shard.begin + begin, cast.numel(), cast.data_ptr());
    });
  }

  /// The master's elements, in host memory, some at a time.
  template <typename Body>
  void for_pieces(const Shard& shard, Body&& body) {
    for (int64_t begin = 0; begin < shard.layout.shard; begin += piece_) {
      int64_t count = std::min(piece_, shard.layout.shard - begin);
      if (shard.local.defined()) {
        body(begin, shard.local.narrow(0, begin, count).to(torch::kCPU));
        continue;
      }
      auto values = torch::empty({count}, torch::kFloat32);
      file_->read(*master_array_, shard.begin + begin, count, values.data_ptr());
      body(begin, values);
    }
  }

  /// Shards that come from the file are on their way to memory, as many as there are buffers beside the one in use.
  void read_ahead(const std::vector<size_t>& units) {
    if (!sent_array_) return;
    auto left = static_cast<int>(plan_.swap.parameter_buffers) - 1;
    for (size_t u : units)
      if (left-- > 0) start_read(u);
  }

  void start_read(size_t u) {
    Shard& shard = shards_[u];
    if (shard.places.sent != ShardPlaces::Sent::file || shard.gathered || shard.incoming.defined() || shard.reading)
      return;
    shard.reading = std::make_unique<SwappedRead>(file_, *sent_array_, shard.begin, shard.layout.shard);
  }

  /// `from` on the device, in the dtype of use. From host memory it is copied by the current stream: through pinned
  /// memory without the host waiting, which writes there again only after the stream has come so far (update()).
  torch::Tensor as_sent(const Shard& shard, torch::Tensor from) {
    bool pinned = from.is_cpu() && world_.device.is_cuda() && plan_.pin_memory;
    auto used = shard.full.options();
    if (pinned && from.scalar_type() != shard.full.scalar_type())
      from = torch::empty(from.sizes(), used.device(torch::kCPU).pinned_memory(true)).copy_(from);
    return from.to(used, /*non_blocking=*/pinned);
  }

  /// This rank's shard as it is sent.
  torch::Tensor shard_to_send(size_t u) {
    Shard& shard = shards_[u];
    if (update_) update_->wait(u);
    if (shard.places.sent == ShardPlaces::Sent::master) return as_sent(shard, shard.local);
    if (shard.places.sent == ShardPlaces::Sent::memory) return as_sent(shard, shard.sent);
    start_read(u);
    auto read =
        torch::from_blob(shard.reading->wait(), {shard.layout.shard}, torch::dtype(scalar_type(plan_.parameter)));
    auto mine = read.to(shard.full.options(), /*non_blocking=*/false, /*copy=*/true);
    shard.reading.reset();
    return mine;
  }

  void start_gather(size_t u) {
    if (u == shards_.size()) return;
    Shard& shard = shards_[u];
    if (shard.gathered || shard.incoming.defined()) return;
    torch::NoGradGuard no_grad;
    auto mine = shard_to_send(u);
    if (plan_.shards == 1) {
      shard.incoming = mine.is_same(shard.local) || mine.is_same(shard.sent) ? mine.clone() : mine;
      return;
    }
    shard.incoming = torch::empty({shard.layout.total}, shard.full.options());
    shard.gather = groups_.shards->_allgather_base(shard.incoming, mine);
  }

  void gather(size_t u) {
    if (u == shards_.size() || shards_[u].gathered) return;
    Shard& shard = shards_[u];
    start_gather(u);
    if (shard.gather) shard.gather->wait();
    shard.gather.reset();
    hand_over(shard.incoming, shard.full);
    shard.incoming.reset();
    shard.gathered = true;
  }

  void release(size_t u) {
    if (u == shards_.size() || !own_copy_ || plan_.units[u].resident || !shards_[u].gathered) return;
    Shard& shard = shards_[u];
    empty_storage(shard.full);
    shard.gathered = false;
  }

  /// Runs when the gradient of block `index`'s output is known, before the block's own backward.
  void before_block_backward(size_t index) {
    size_t own = unit_of_block_[index];
    for (size_t u = 0; u < shards_.size(); ++u)
      if (plan_.units[u].first_needed_in_backward > index && u != own) release(u);
    if (own < shards_.size() && plan_.units[own].first_needed_in_backward <= index)
      gather(own);
    else
      release(own);
    read_ahead(ahead_in_backward_[index]);
    if (plan_.backward_prefetch == ShardPlan::Prefetch::before) prefetch_in_backward(index);
  }

  void prefetch_in_backward(size_t index) {
    if (!prefetches_) return;
    for (size_t ahead : ahead_in_backward_[index]) start_gather(ahead);
  }

  // ---- gradients
  void gradient_arrived(size_t u, size_t item) {
    torch::NoGradGuard no_grad;
    auto& slot = model_.slots[shards_[u].layout.items[item].slot];
    if (!slot.grad().defined()) return;
    bool last = reduction_->arrived(u, item, slot.grad());
    slot.mutable_grad().reset();
    if (last && plan_.backward_prefetch == ShardPlan::Prefetch::after && !plan_.units[u].blocks.empty())
      prefetch_in_backward(plan_.units[u].blocks.front());
  }

  static constexpr int64_t piece_ = 1 << 20;  ///< elements of a master that pass through memory at once

  ShardPlan plan_;
  ShardEvents events_;
  std::shared_ptr<SwappedArrays> file_;
  std::optional<size_t> master_array_, sent_array_;
  bool own_copy_ = true;
  torch::Device host_{torch::kCPU};
  bool prefetches_ = false;
  ShardGroups groups_;
  std::vector<Shard> shards_;
  std::optional<GradientReduction> reduction_;
  std::vector<size_t> unit_of_block_;
  std::vector<std::vector<size_t>> ahead_in_forward_, ahead_in_backward_;
  std::vector<Place> places_;
  // ---- where the update runs in the background
  std::vector<std::vector<size_t>> resident_of_block_;
  std::vector<bool> to_spread_;               ///< resident units that ranks have new shards of
  bool updated_behind_ = false;               ///< no backward has begun since the last update did
  std::unique_ptr<BackgroundUpdate> update_;  ///< last: its thread ends before what it uses
};

}  // namespace

std::unique_ptr<Strategy> make_sharded(StrategySetup setup, ShardPlan plan, ShardEvents events) {
  return std::make_unique<Sharded>(std::move(setup), std::move(plan), std::move(events));
}

}  // namespace runner
