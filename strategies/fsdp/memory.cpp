// fsdp's memory: the strategy's gathers, releases and reductions, hook for hook, in bytes.
#include "strategies/contract/memory.hpp"

#include <algorithm>

#include "strategies/fsdp/entry.hpp"

namespace runner {

namespace {

/// One unit on this rank.
struct UnitBytes {
  int64_t gathered = 0;   ///< of the whole unit in the dtype of use
  int64_t unsharded = 0;  ///< of its gradients before they are reduced
  int64_t shard = 0;      ///< of this rank's part, parameter dtype
  bool in_use = false, arriving = false, reduced = false;
};

class FsdpMemory : public StepMemory {
 public:
  FsdpMemory(const Job& job, const FsdpPlan& plan)
      : StepMemory(job, plan.parameter), plan_(plan), own_copy_(plan.own_copy(job)) {
    int64_t element = bytes_of(job.precision.parameter);
    unit_of_block_.resize(job.model->blocks.size());
    std::vector<int64_t> held(static_cast<size_t>(plan.shards), 0);  // parameter elements of each rank, without padding
    for (const auto& unit : plan.units) {
      FlatLayout layout = make_flat_layout(*job.model, unit.slots, plan.shards);
      for (size_t block : unit.blocks) unit_of_block_[block] = units_.size();
      units_.push_back(
          {layout.total * bytes_of(plan.parameter), layout.total * bytes_of(plan.reduce), layout.shard * element});
      now_.parameters += layout.shard * element;
      for (size_t rank = 0; rank < held.size(); ++rank)
        for (const auto& item : layout.items) {
          int64_t begin = static_cast<int64_t>(rank) * layout.shard;
          held[rank] += std::max<int64_t>(
              0, std::min(begin + layout.shard, item.offset + item.numel) - std::max(begin, item.offset));
        }
    }
    now_.optimizer = *std::max_element(held.begin(), held.end()) * element * job.optimizer_states;
    if (job.options.value("cpu_offload", false) && job.cuda) now_.parameters = now_.optimizer = 0;
    std::string prefetch = job.options.value("backward_prefetch", "BACKWARD_PRE");
    prefetch_backward_ = job.cuda && prefetch != "NONE";
    prefetch_forward_ = job.cuda && job.options.value("forward_prefetch", false);
  }

 protected:
  void micro_batch_begins(bool, bool last) override { reduce_now_ = last || plan_.reduce_every_micro_batch; }

  void block_begins(size_t block, bool backward) override {
    size_t u = unit_of_block_[block];
    if (!backward) {
      gather(u);
      if (prefetch_forward_ && u + 1 < units_.size()) gather(u + 1);
      return;
    }
    for (size_t other = 0; other < units_.size(); ++other)
      if (plan_.units[other].first_needed_in_backward > block && other != u) release(other);
    if (plan_.units[u].first_needed_in_backward <= block)
      gather(u);
    else
      release(u);
    for (size_t before = block; prefetch_backward_ && before-- > 0;) {
      size_t next = unit_of_block_[before];
      if (next == u || plan_.units[next].first_needed_in_backward > before) continue;
      gather(next);
      break;
    }
  }

  void gradients_arrive(size_t block, int64_t elements) override {
    UnitBytes& unit = units_[unit_of_block_[block]];
    if (elements == 0 || unit.arriving) return;
    unit.arriving = true;
    now_.communication += unit.unsharded;
  }

  void block_ends(size_t block, bool backward) override {
    size_t u = unit_of_block_[block];
    if (backward) {
      if (plan_.units[u].blocks.front() != block) return;
      if (reduce_now_) reduce(units_[u]);
      release(u);
    } else {
      bool last_use = plan_.units[u].blocks.back() == block, needed_at_once = block + 1 == job_.model->blocks.size();
      if (last_use && !needed_at_once && plan_.reshard_after_forward) release(u);
    }
  }

 private:
  void gather(size_t u) {
    if (!own_copy_ || units_[u].in_use) return;
    units_[u].in_use = true;
    now_.gathered += units_[u].gathered;
    int64_t cast =
        plan_.shards > 1 && plan_.parameter != job_.precision.parameter ? units_[u].gathered / plan_.shards : 0;
    now_.gathered += cast;  // this rank's shard in the dtype of use, until it is sent
    note();
    now_.gathered -= cast;
  }

  void release(size_t u) {
    if (!units_[u].in_use) return;
    units_[u].in_use = false;
    now_.gathered -= units_[u].gathered;
  }

  /// The unsharded gradients, their sum's shard in the reduce dtype, and that cast to the parameters' exist side by
  /// side.
  void reduce(UnitBytes& unit) {
    bool cast = plan_.reduce != job_.precision.parameter;
    int64_t shard_on_the_way = plan_.shards > 1 ? unit.unsharded / plan_.shards : 0;
    int64_t own = plan_.shards > 1 && !cast ? 0 : cast ? unit.shard : 0;
    now_.communication += shard_on_the_way + own;
    note();
    now_.communication -= shard_on_the_way + own + (unit.arriving ? unit.unsharded : 0);
    unit.arriving = false;
    if (!unit.reduced) now_.gradients += unit.shard;
    unit.reduced = true;
  }

  FsdpPlan plan_;
  bool own_copy_;
  bool prefetch_backward_ = false, prefetch_forward_ = false, reduce_now_ = true;
  std::vector<UnitBytes> units_;
  std::vector<size_t> unit_of_block_;
};

}  // namespace

MemoryParts fsdp_memory(const Job& job) { return FsdpMemory(job, fsdp_plan(job)).play(); }

}  // namespace runner
