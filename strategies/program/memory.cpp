// Predicts the memory of a step of a ShardPlan: counts the bytes of the gathers, releases and reductions that
// strategy.cpp makes.
#include "strategies/contract/memory.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "strategies/offload/swapped_arrays.hpp"
#include "strategies/program/plan.hpp"

namespace runner {

namespace {

/// Sizes (in bytes) and state of one unit on this rank.
struct UnitBytes {
  int64_t gathered = 0;   ///< the unsharded unit in the gathered dtype
  int64_t unsharded = 0;  ///< its unsharded gradients in the dtype of accumulation
  int64_t sent = 0;       ///< its unsharded gradients in the dtype of reduction
  int64_t shard = 0;      ///< elements (not bytes) of this rank's shard
  size_t missing = 0;     ///< parameters whose gradient has not arrived in this micro-batch
  bool cast = false;      ///< a gather sends a temporary copy of the shard
  int64_t sending = 0;    ///< bytes of that copy, from the start of the gather until a block waits for it
  bool in_use = false, arriving = false, reduced = false;
  bool adds = false;  ///< the buffer has gradients of earlier micro-batches
};

class ShardedMemory : public StepMemory {
 public:
  ShardedMemory(const Job& job, const ShardPlan& plan)
      : StepMemory(job, plan.parameter),
        plan_(plan),
        own_copy_(plan.own_copy(job.precision.parameter)),
        on_device_(!(plan.separate_host && plan.optimizer != Tier::device)),
        unit_of_block_(units_of_blocks(plan, job.model->blocks.size())) {
    DType master = job.precision.parameter;
    int64_t element = bytes_of(master);
    int read_units = 0;
    unit_of_slot_.resize(job.model->parameters().size());
    for (size_t u = 0; u < plan.units.size(); ++u) {
      const auto& unit = plan.units[u];
      auto places = plan.places(unit, master);
      FlatLayout layout = make_flat_layout(*job.model, unit.slots, plan.shards);
      units_.push_back({layout.total * bytes_of(plan.parameter), layout.total * bytes_of(plan.accumulate),
                        layout.total * bytes_of(plan.reduce), layout.shard});
      for (size_t slot : unit.slots) unit_of_slot_[slot] = u;
      if (unit.resident && own_copy_) now_.parameters += units_[u].gathered;
      int64_t sent = layout.shard * bytes_of(plan.parameter), masters = layout.shard * element;
      if (places.master == ShardPlaces::Master::memory || !own_copy_)
        (on_device_ ? now_.parameters : host_) += on_device_ ? masters : pinned(masters);
      if (places.sent == ShardPlaces::Sent::memory) {
        bool sent_on_device = unit.shards == Tier::device;
        (sent_on_device ? now_.parameters : host_) += sent_on_device ? sent : pinned(sent);
      }
      if (plan.written_apart(unit, master)) host_ += pinned(sent);
      bool cast_on_host = places.sent == ShardPlaces::Sent::master && !on_device_ && plan.parameter != master;
      if (cast_on_host && plan.pin_memory) casts_.insert(pinned(sent));
      units_[u].cast = plan.shards > 1 && is_cast(unit, places);
      if (places.sent == ShardPlaces::Sent::file) {
        read_ahead_ = std::max(read_ahead_, sent);
        ++read_units;
      }
      if (!on_device_) waiting_on_host_ += pinned(layout.shard * bytes_of(plan.gradient));
      count_held(layout);
    }
    sum_held();
    read_ahead_ *= std::min(read_units, plan.swap.parameter_buffers);
    held_most_ = *std::max_element(held_.begin(), held_.end());
    now_.held = held_most_;
    int64_t state = held_most_ * element * job.optimizer_states;
    if (plan.optimizer == Tier::device) now_.optimizer = state;
    if (plan.optimizer == Tier::host) host_ += state;
  }

  /// Host memory at the end of backward and in the update: permanent tensors, gradients, and buffers. A background
  /// update frees its gradients before the next ones are reduced, so gradients are counted once.
  int64_t host_bytes() const {
    if (!plan_.separate_host) return 0;
    int64_t casts = std::accumulate(casts_.begin(), casts_.end(), int64_t{0});
    return host_ + waiting_on_host_ + casts + std::max(read_ahead_, on_device_ ? 0 : update_copies());
  }

 protected:
  void micro_batch_begins(bool first, bool last) override {
    if (first && !plan_.separate_host) now_.gathered += read_ahead_;
    reduce_now_ = last || plan_.reduce_every_micro_batch;
    for (size_t u = 0; u < units_.size(); ++u) {
      units_[u].missing = plan_.units[u].slots.size();
      units_[u].adds = units_[u].arriving && in_flight_ != u;
    }
  }

  void block_begins(size_t block, bool backward) override {
    size_t u = unit_of_block_[block];
    if (!backward) {
      gather(u);
      if (plan_.forward_prefetch && plan_.prefetches)
        for (size_t ahead : ahead(false)[block]) start_gather(ahead);
      return;
    }
    for (size_t other = 0; other < units_.size(); ++other)
      if (plan_.units[other].first_needed_in_backward > block && other != u) release(other);
    if (u < units_.size() && plan_.units[u].first_needed_in_backward <= block)
      gather(u);
    else
      release(u);
    if (plan_.backward_prefetch == ShardPlan::Prefetch::before) prefetch_in_backward(block);
  }

  void prefetch_in_backward(size_t block) {
    if (!plan_.prefetches) return;
    for (size_t ahead : ahead(true)[block]) start_gather(ahead);
  }

  /// units_ahead(), computed once for all micro-batches.
  const std::vector<std::vector<size_t>>& ahead(bool backward) {
    auto& known = ahead_[backward ? 1 : 0];
    if (known.empty()) known = units_ahead(*job_.model, plan_, backward);
    return known;
  }

  void gradient_arrives(size_t slot) override {
    size_t u = unit_of_slot_[slot];
    if (in_flight_ == u) finish_reduction();
    if (!units_[u].arriving) now_.communication += units_[u].unsharded;
    units_[u].arriving = true;
    now_.communication += widened(slot);
  }

  void gradient_taken(size_t slot) override {
    size_t u = unit_of_slot_[slot];
    now_.communication -= widened(slot);
    if (--units_[u].missing > 0) return;
    if (reduce_now_) reduce(u);
    const auto& blocks = plan_.units[u].blocks;
    if (plan_.backward_prefetch == ShardPlan::Prefetch::after && !blocks.empty()) prefetch_in_backward(blocks.front());
  }

  void block_ends(size_t block, bool backward) override {
    if (!backward) {
      size_t u = unit_of_block_[block];
      if (u < units_.size() && plan_.units[u].blocks.back() == block && !plan_.units[u].keep_after_forward) release(u);
      return;
    }
    size_t u = unit_of_block_[block];
    if (u < units_.size() && plan_.units[u].blocks.front() == block) release(u);
  }

  void update() override {
    finish_reduction();
    int64_t copied = on_device_ ? update_copies() : 0;
    if (!plan_.separate_host) now_.gathered -= read_ahead_;
    now_.communication += copied;
    note();
    now_.communication -= copied;
  }

 private:
  /// Bytes that a tensor in host memory takes, which is pinned if the plan says so.
  int64_t pinned(int64_t bytes) const {
    bool rounded = plan_.pin_memory && bytes > 0;
    return rounded ? pinned_bytes(bytes) : bytes;
  }

  /// Adds the elements of each item to the ranks whose shards it covers: parts of the first and the last shard, and all
  /// of those between. held_ contains differences between consecutive ranks, until sum_held().
  void count_held(const FlatLayout& layout) {
    held_.resize(static_cast<size_t>(plan_.shards) + 1);
    auto add = [&](int64_t first, int64_t last, int64_t elements) {  // to ranks [first, last)
      held_[static_cast<size_t>(first)] += elements;
      held_[static_cast<size_t>(last)] -= elements;
    };
    for (const auto& item : layout.items) {
      if (item.numel == 0) continue;
      int64_t end = item.offset + item.numel, first = item.offset / layout.shard, last = (end - 1) / layout.shard;
      add(first, first + 1, std::min(end, (first + 1) * layout.shard) - item.offset);
      if (last == first) continue;
      add(first + 1, last, layout.shard);
      add(last, last + 1, end - last * layout.shard);
    }
  }
  void sum_held() {
    for (size_t rank = 1; rank < held_.size(); ++rank) held_[rank] += held_[rank - 1];
    held_.pop_back();
  }

  /// Temporary memory of the update: tiles of the file's arrays, and casts of gradients that have another dtype than
  /// the masters. The casts are made in parts of update_elements. The kernel in adam.hpp needs no casts.
  int64_t update_copies() const {
    DType master = job_.precision.parameter;
    bool on_host = !job_.accelerator.own_memory || plan_.optimizer != Tier::device,
         reads_any = master == DType::float32 && job_.optimizer_states == 2;
    if (plan_.gradient == master || (on_host && reads_any)) return update_tiles();
    int64_t elements = held_most_;
    if (plan_.updates_beside()) {  // the update casts one unit at a time
      elements = 0;
      for (const auto& unit : units_) elements = std::max(elements, unit.shard);
    }
    if (plan_.update_elements > 0) elements = std::min(elements, plan_.update_elements);
    return update_tiles() + elements * bytes_of(master);
  }

  int64_t update_tiles() const {
    auto use = plan_.swap_use(job_.precision.parameter);
    if (!use.state) return 0;
    auto array = [](const char* name, DType dtype) {
      return SwappedArrays::Array{name, static_cast<int>(bytes_of(dtype))};
    };
    std::vector<SwappedArrays::Array> arrays{array("exp_avg", DType::float32), array("exp_avg_sq", DType::float32)};
    if (use.master) arrays.push_back(array("parameter", DType::float32));
    if (use.sent) arrays.push_back(array("sent", plan_.parameter));
    int64_t elements = 0;
    for (const auto& unit : units_) elements += SwappedArrays::whole_units(unit.shard);
    return stream_buffer_bytes(plan_.swap.tile, arrays, plan_.swap.update_buffers, elements);
  }

  /// Temporary bytes on CPU when a gradient is added to a buffer of a wider dtype: the gradient is converted first.
  int64_t widened(size_t slot) const {
    if (!units_[unit_of_slot_[slot]].adds || !job_.accelerator.host_kernels || plan_.accumulate == plan_.parameter)
      return 0;
    return elements_[slot] * bytes_of(plan_.accumulate);
  }

  bool is_cast(const ShardUnit& unit, const ShardPlaces& places) const {
    if (places.sent == ShardPlaces::Sent::master) return plan_.parameter != job_.precision.parameter || !on_device_;
    return places.sent == ShardPlaces::Sent::file || unit.shards == Tier::host;
  }

  /// Counts the gathered unit, and this rank's shard in the gathered dtype.
  void start_gather(size_t u) {
    if (u >= units_.size() || !own_copy_ || units_[u].in_use) return;
    units_[u].in_use = true;
    units_[u].sending = units_[u].cast ? units_[u].gathered / plan_.shards : 0;
    now_.gathered += units_[u].gathered + units_[u].sending;
    note();
  }

  void gather(size_t u) {
    start_gather(u);
    if (u < units_.size()) now_.gathered -= std::exchange(units_[u].sending, 0);
  }

  void release(size_t u) {
    if (u >= units_.size() || !units_[u].in_use) return;
    units_[u].in_use = false;
    now_.gathered -= units_[u].gathered;
  }

  /// Counts the unsharded gradients in the dtype of accumulation, then in that of reduction, and then also the shard of
  /// their sums.
  void reduce(size_t u) {
    finish_reduction();
    const UnitBytes& unit = units_[u];
    if (plan_.accumulate != plan_.reduce) {
      now_.communication += unit.sent;
      note();
      now_.communication -= unit.unsharded;
    }
    now_.communication += on_the_way(unit);
    note();
    in_flight_ = u;
    if (!plan_.overlap) finish_reduction();
  }

  int64_t on_the_way(const UnitBytes& unit) const { return plan_.shards > 1 ? unit.sent / plan_.shards : 0; }

  /// At the end of a reduction all of these exist, and the sums in the dtype in which they are kept.
  void finish_reduction() {
    if (!in_flight_) return;
    UnitBytes& unit = units_[*in_flight_];
    in_flight_.reset();
    int64_t waiting = unit.shard * bytes_of(plan_.gradient), cast = plan_.reduce != plan_.gradient ? waiting : 0;
    now_.communication += cast;
    note();
    now_.communication -= cast + on_the_way(unit) + unit.sent;
    unit.arriving = false;
    if (!unit.reduced && on_device_) now_.gradients += waiting;
    unit.reduced = true;
  }

  ShardPlan plan_;
  bool own_copy_;
  bool on_device_;  ///< masters (if in memory) and reduced gradients are in device memory
  int64_t read_ahead_ = 0;
  int64_t host_ = 0, waiting_on_host_ = 0;  ///< bytes in host memory: permanent tensors; reduced gradients
  std::set<int64_t> casts_;  ///< sizes of pinned blocks for casts of shards; the allocator keeps one block of each size
  bool reduce_now_ = true;
  std::vector<UnitBytes> units_;
  std::optional<size_t> in_flight_;
  std::vector<size_t> unit_of_slot_, unit_of_block_;
  std::array<std::vector<std::vector<size_t>>, 2> ahead_;  ///< by direction and block; empty until computed
  std::vector<int64_t> held_;  ///< parameter elements of each rank of a copy of the model, without padding
  int64_t held_most_ = 0;
};

}  // namespace

MemoryParts sharded_memory(const Job& job, const ShardPlan& plan) {
  ShardedMemory memory(job, plan);
  auto parts = memory.play();
  parts.host += memory.host_bytes();
  parts.held_on_host = plan.separate_host && plan.optimizer != Tier::device;
  auto use = plan.swap_use(job.precision.parameter);
  parts.state_on_disk = use.state || use.master;
  return parts;
}

}  // namespace runner
