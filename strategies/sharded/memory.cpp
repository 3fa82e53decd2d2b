// The memory of a step: the machine's gathers, releases and reductions, hook for hook, in bytes.
#include "strategies/contract/memory.hpp"

#include <algorithm>

#include "strategies/sharded/plan.hpp"

namespace runner {

namespace {

/// One unit on this rank.
struct UnitBytes {
  int64_t gathered = 0;   ///< of the whole unit in the dtype of use
  int64_t unsharded = 0;  ///< of its gradients before they are reduced
  int64_t shard = 0;      ///< elements of this rank's part
  size_t missing = 0;     ///< parameters whose gradient has not come in this micro-batch
  bool cast = false;      ///< what it sends is made for the gather
  bool in_use = false, arriving = false, reduced = false;
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
    unit_of_slot_.resize(job.model->parameters().size());
    for (size_t u = 0; u < plan.units.size(); ++u) {
      const auto& unit = plan.units[u];
      auto places = plan.places(unit, master);
      FlatLayout layout = make_flat_layout(*job.model, unit.slots, plan.shards);
      units_.push_back({layout.total * bytes_of(plan.parameter), layout.total * bytes_of(plan.reduce), layout.shard});
      for (size_t slot : unit.slots) unit_of_slot_[slot] = u;
      if (unit.resident && own_copy_) now_.parameters += units_[u].gathered;
      if (on_device_ && (places.master == ShardPlaces::Master::memory || !own_copy_))
        now_.parameters += layout.shard * element;
      if (places.sent == ShardPlaces::Sent::memory && unit.shards == Tier::device)
        now_.parameters += layout.shard * bytes_of(plan.parameter);
      units_[u].cast = plan.shards > 1 && is_cast(unit, places);
      if (places.sent == ShardPlaces::Sent::file)
        read_ahead_ = std::max(read_ahead_, layout.shard * bytes_of(plan.parameter) * plan.swap.parameter_buffers);
      count_held(layout);
    }
    held_most_ = *std::max_element(held_.begin(), held_.end());
    if (plan.optimizer == Tier::device) now_.optimizer = held_most_ * element * job.optimizer_states;
  }

 protected:
  void micro_batch_begins(bool first, bool last) override {
    if (first) now_.gathered += read_ahead_;
    reduce_now_ = last || plan_.reduce_every_micro_batch;
    for (size_t u = 0; u < units_.size(); ++u) units_[u].missing = plan_.units[u].slots.size();
  }

  void block_begins(size_t block, bool backward) override {
    size_t u = unit_of_block_[block];
    if (!backward) {
      gather(u);
      if (plan_.forward_prefetch && job_.cuda)
        for (size_t ahead : units_ahead(job_, plan_, block, false)) gather(ahead);
      return;
    }
    for (size_t other = 0; other < units_.size(); ++other)
      if (plan_.units[other].first_needed_in_backward > block && other != u) release(other);
    if (u < units_.size() && plan_.units[u].first_needed_in_backward <= block)
      gather(u);
    else
      release(u);
    if (plan_.backward_prefetch != ShardPlan::Prefetch::none && job_.cuda)
      for (size_t ahead : units_ahead(job_, plan_, block, true)) gather(ahead);
  }

  void gradient_arrives(size_t slot) override {
    UnitBytes& unit = units_[unit_of_slot_[slot]];
    if (unit.arriving) return;
    unit.arriving = true;
    now_.communication += unit.unsharded;
  }

  void gradient_taken(size_t slot) override {
    UnitBytes& unit = units_[unit_of_slot_[slot]];
    if (--unit.missing == 0 && reduce_now_) reduce(unit);
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

  /// Gradients that wait in another dtype than the optimizer's are copied, a piece at a time, unless its kernel reads
  /// them as they are (adam.hpp).
  void update() override {
    DType master = job_.precision.parameter;
    bool on_host = !job_.cuda || plan_.optimizer != Tier::device,
         reads_any = master == DType::float32 && job_.optimizer_states == 2;
    int64_t copied = 0;
    if (on_device_ && plan_.gradient != master && !(on_host && reads_any))
      copied =
          (plan_.update_elements > 0 ? std::min(held_most_, plan_.update_elements) : held_most_) * bytes_of(master);
    copied += update_buffers();
    now_.gathered -= read_ahead_;
    now_.communication += copied;
    note();
    now_.communication -= copied;
  }

 private:
  void count_held(const FlatLayout& layout) {
    held_.resize(static_cast<size_t>(plan_.shards));
    for (size_t rank = 0; rank < held_.size(); ++rank)
      for (const auto& item : layout.items) {
        int64_t begin = static_cast<int64_t>(rank) * layout.shard;
        held_[rank] += std::max<int64_t>(
            0, std::min(begin + layout.shard, item.offset + item.numel) - std::max(begin, item.offset));
      }
  }

  /// Tiles of the file's arrays, where they are in the same memory.
  int64_t update_buffers() const {
    auto use = plan_.swap_use(job_.precision.parameter);
    if (!use.state || plan_.separate_host) return 0;
    int64_t elements = 0;
    for (const auto& unit : units_) elements += unit.shard;
    int64_t bytes = 2 * bytes_of(DType::float32) + (use.master ? bytes_of(DType::float32) : 0) +
                    (use.sent ? bytes_of(plan_.parameter) : 0);
    return std::min(elements, plan_.swap.tile * plan_.swap.update_buffers) * bytes;
  }

  bool is_cast(const ShardUnit& unit, const ShardPlaces& places) const {
    if (places.sent == ShardPlaces::Sent::master) return plan_.parameter != job_.precision.parameter || !on_device_;
    return places.sent == ShardPlaces::Sent::file || unit.shards == Tier::host;
  }

  void gather(size_t u) {
    if (u >= units_.size() || !own_copy_ || units_[u].in_use) return;
    units_[u].in_use = true;
    now_.gathered += units_[u].gathered;
    int64_t cast = units_[u].cast ? units_[u].gathered / plan_.shards : 0;
    now_.gathered += cast;  // this rank's shard in the dtype of use, until it is sent
    note();
    now_.gathered -= cast;
  }

  void release(size_t u) {
    if (u >= units_.size() || !units_[u].in_use) return;
    units_[u].in_use = false;
    now_.gathered -= units_[u].gathered;
  }

  /// The unsharded gradients, their sum's shard in the reduce dtype, and that cast to the dtype they wait in exist side
  /// by side.
  void reduce(UnitBytes& unit) {
    int64_t waiting = unit.shard * bytes_of(plan_.gradient);
    int64_t on_the_way = plan_.shards > 1 ? unit.unsharded / plan_.shards : 0;
    int64_t cast = plan_.reduce != plan_.gradient ? waiting : 0;
    now_.communication += on_the_way + cast;
    note();
    now_.communication -= on_the_way + cast + (unit.arriving ? unit.unsharded : 0);
    unit.arriving = false;
    if (!unit.reduced && on_device_) now_.gradients += waiting;
    unit.reduced = true;
  }

  ShardPlan plan_;
  bool own_copy_;
  bool on_device_;  ///< masters in memory, and gradients that wait, are in the device's memory
  int64_t read_ahead_ = 0;
  bool reduce_now_ = true;
  std::vector<UnitBytes> units_;
  std::vector<size_t> unit_of_slot_, unit_of_block_;
  std::vector<int64_t> held_;  ///< parameter elements of each rank of a copy, without padding
  int64_t held_most_ = 0;
};

}  // namespace

MemoryParts sharded_memory(const Job& job, const ShardPlan& plan) {
  auto parts = ShardedMemory(job, plan).play();
  auto use = plan.swap_use(job.precision.parameter);
  parts.state_on_disk = use.state || use.master;
  return parts;
}

}  // namespace runner
