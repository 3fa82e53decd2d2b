#include <algorithm>
#include <deque>
#include <ranges>
#include <set>

#include "strategies/pipeline/transfers.hpp"
#include "strategies/program/program.hpp"
#include "strategies/program/split_backward.hpp"

namespace runner {

namespace {

/// Writes the instructions in order. Keeps track of what is gathered and which reductions are running.
class Writer {
 public:
  Writer(const ModelSpec& model, const ParallelPlan& plan, const std::vector<bool>& recompute)
      : model_(model),
        plan_(plan),
        recompute_(recompute),
        blocks_(model.blocks.size()),
        first_trained_(model.first_trained_block()),
        units_of_(units_of_blocks(plan, blocks_)),
        ahead_in_forward_(units_ahead(model, plan, /*backward=*/false)),
        ahead_in_backward_(units_ahead(model, plan, /*backward=*/true)),
        residents_(resident_units_of_blocks(model, plan)),
        reading_(plan.units.size(), false),
        started_(plan.units.size(), false),
        updated_(plan.units.size(), true),
        tied_(plan.units.size(), false),
        summed_(plan.units.size(), false),
        trained_(trained_units(plan)),
        filled_(blocks_),
        completed_(blocks_) {
    std::vector<size_t> block_of_slot;
    for (size_t b = 0; b < blocks_; ++b)
      block_of_slot.insert(block_of_slot.end(), model.blocks[b].parameters.size(), b);
    const auto parameters = model.parameters();
    for (size_t u : trained_) {
      updated_[u] = !plan.updates_beside();
      size_t complete_at = blocks_;
      for (size_t slot : plan.units[u].slots) {
        const auto& part = parameters[slot]->part;
        summed_[u] = summed_[u] || (part && part->sums_replicas);
        tied_[u] = tied_[u] || is_tied(model, *parameters[slot]);
        const size_t b = block_of_slot[slot];
        complete_at = std::min(complete_at, b);
        if (std::ranges::find(filled_[b], u) == filled_[b].end()) filled_[b].push_back(u);
      }
      if (complete_at < blocks_ && !tied_[u]) completed_[complete_at].insert(completed_[complete_at].begin(), u);
    }
  }

  Program write(int64_t micro_batches) {
    if (model_.stage) return write_stage(micro_batches);
    for (int64_t m = 0; m < micro_batches; ++m) {
      micro_batch_ = static_cast<uint32_t>(m);
      forward({.begin = 0, .end = blocks_}, /*first=*/m == 0, /*backward_follows=*/true);
      backward({.begin = 0, .end = blocks_}, Op::backward, plan_.reduce_every_micro_batch || m + 1 == micro_batches);
      release_if([](size_t) { return true; });
    }
    return finish();
  }

  Program write_forward() {
    if (model_.stage) return write_forward_of_stage();
    forward({.begin = 0, .end = blocks_}, /*first=*/true, /*backward_follows=*/false);
    return std::move(program_);
  }

 private:
  /// Consecutive blocks: all, or those of a stage.
  struct Range {
    size_t begin, end;
  };

  Program finish() {
    wait_for_reductions();
    add({.op = Op::norm});
    if (!plan_.updates_beside()) update_all();
    return std::move(program_);
  }

  // ---- a stage of a pipeline
  Program write_stage(int64_t micro_batches) {
    auto shape = plan_.pipeline;
    shape.micro_batches = static_cast<int>(micro_batches);
    stays_gathered_ = true;
    const auto order = training_order_with_transfers(shape);
    for (const auto& action : (*order)[static_cast<size_t>(model_.stage->rank)])
      play(action, /*reduces=*/action.micro_batch + 1 == micro_batches);
    stays_gathered_ = false;
    release_if([](size_t) { return true; });
    for (size_t u : trained_ | std::views::reverse)
      if (tied_[u]) reduce(u);
    return finish();
  }

  Program write_forward_of_stage() {
    auto shape = plan_.pipeline;
    shape.micro_batches = 1;
    const auto order = with_transfers(shape, forward_order(shape));
    for (const auto& action : order[static_cast<size_t>(model_.stage->rank)]) play(action, /*reduces=*/false);
    release_if([](size_t) { return true; });
    return std::move(program_);
  }

  Range blocks_of(int stage) const {
    const auto& stages = model_.stage->stage_of;
    const auto [begin, end] = std::ranges::equal_range(stages, stage);
    return {static_cast<size_t>(begin - stages.begin()), static_cast<size_t>(end - stages.begin())};
  }

  void play(const PipelineAction& action, bool reduces) {
    const Range range = blocks_of(action.stage);
    const size_t first = range.begin, last = range.end - 1;
    micro_batch_ = static_cast<uint32_t>(action.micro_batch);
    switch (action.kind) {
      case ActionKind::forward:
        return forward(range, /*first=*/action.micro_batch == 0, /*backward_follows=*/stays_gathered_);
      case ActionKind::backward:
        return backward(range, Op::backward, reduces);
      case ActionKind::backward_input:
        return backward(range, Op::backward_input, /*reduces=*/false);
      case ActionKind::backward_weight:
        return backward_weight(range, reduces);
      case ActionKind::receive_activation:
        return add({.op = Op::receive_input, .axis = Axis::pipeline, .block = index(first)});
      case ActionKind::send_activation:
        return add({.op = Op::send_output, .axis = Axis::pipeline, .block = index(last)});
      case ActionKind::receive_gradient:
        if (last >= first_trained_) add({.op = Op::receive_gradient, .axis = Axis::pipeline, .block = index(last)});
        return;
      case ActionKind::send_gradient:
        if (model_.passes_gradient(first))
          add({.op = Op::send_gradient, .axis = Axis::pipeline, .block = index(first)});
        return;
    }
  }

  void add(Instruction instruction) {
    instruction.micro_batch = micro_batch_;
    program_.push_back(instruction);
  }
  static uint16_t index(size_t i) { return static_cast<uint16_t>(i); }

  // ---- parameters
  void update_all() {
    for (size_t u : trained_) add({.op = Op::update, .unit = index(u)});
    for (size_t u : trained_) gather_updated(u);
  }

  void gather_updated(size_t u) {
    if (plan_.units[u].resident && is_sharded(plan_, plan_.units[u]))
      add({.op = Op::gather_updated, .axis = Axis::shard, .unit = index(u)});
  }

  /// An update that overlaps with forward ends before the first use of the unit.
  void finish_update(size_t u) {
    if (updated_[u]) return;
    updated_[u] = true;
    add({.op = Op::update, .unit = index(u)});
    gather_updated(u);
  }

  void start_gather(size_t u) {
    if (started_[u]) return;
    finish_update(u);
    started_[u] = true;
    reading_[u] = false;
    add({.op = Op::start_gather, .axis = Axis::shard, .unit = index(u)});
  }

  void gather(const std::vector<size_t>& units) {
    for (size_t u : units) start_gather(u);
    for (size_t u : units) {
      if (!gathered_.insert(u).second) continue;
      add({.op = Op::wait_gather, .axis = Axis::shard, .unit = index(u)});
    }
  }

  void release(size_t u) {
    if (!stays_gathered_ && gathered_.erase(u) > 0) add_release(u);
  }

  /// Releases gathered units, in ascending order.
  void release_if(const auto& which) {
    if (stays_gathered_) return;
    std::erase_if(gathered_, [&](size_t u) {
      if (!which(u)) return false;
      add_release(u);
      return true;
    });
  }

  void add_release(size_t u) {
    started_[u] = false;
    add({.op = Op::release, .unit = index(u)});
  }

  /// Shards in a file are read before their gathers start. One buffer is for the shard in use.
  void read_ahead(const std::vector<size_t>& units) {
    int64_t left = plan_.swap.parameter_buffers - 1;
    for (size_t u : units) {
      if (left-- <= 0) return;
      if (plan_.units[u].tier != Tier::nvme || started_[u] || reading_[u]) continue;
      reading_[u] = true;
      add({.op = Op::start_read, .unit = index(u)});
    }
  }

  // ---- a micro-batch
  void forward(const Range& range, bool first, bool backward_follows) {
    for (size_t b = range.begin; b < range.end; ++b) {
      for (size_t u : residents_[b]) finish_update(u);
      gather(units_of_[b]);
      read_ahead(ahead_in_forward_[b]);
      // A gather would wait for the update of its unit, which overlaps with the first forward.
      const bool ahead = plan_.prefetches && plan_.forward_prefetch && !(first && plan_.updates_beside());
      if (ahead)
        for (size_t u : ahead_in_forward_[b]) start_gather(u);
      add({.op = Op::forward, .block = index(b)});
      for (size_t u : units_of_[b])
        if (plan_.units[u].blocks.back() == b && !(backward_follows && is_kept(u))) release(u);
    }
  }

  /// Whether the unit stays gathered between forward and backward.
  bool is_kept(size_t u) const {
    return plan_.units[u].keep_after_forward && plan_.units[u].blocks.back() >= first_trained_;
  }

  /// `op`: all of it, or its first part.
  void backward(const Range& range, Op op, bool reduces) {
    for (size_t b = range.end; b-- > std::max(range.begin, first_trained_);) {
      make_ready_for_backward(b);
      read_ahead(used_in_backward(ahead_in_backward_[b]));
      if (plan_.backward_prefetch == ParallelPlan::Prefetch::before) gather_ahead_in_backward(b);
      recompute(b);
      for (size_t u : filled_[b]) wait_for_reduction(u);  // it reads the buffer that the backward fills
      add({.op = op, .block = index(b)});
      const bool unit_ends = b == 0 || std::ranges::any_of(units_of_[b], [&](size_t u) {
                               return std::ranges::find(units_of_[b - 1], u) == units_of_[b - 1].end();
                             });
      if (plan_.backward_prefetch == ParallelPlan::Prefetch::after && unit_ends) gather_ahead_in_backward(b);
      if (reduces) reduce_complete(b);
    }
  }

  void backward_weight(const Range& range, bool reduces) {
    for (size_t b = range.end; b-- > std::max(range.begin, first_trained_);) {
      if (has_later_products(model_.blocks[b])) {
        for (size_t u : filled_[b]) wait_for_reduction(u);
        add({.op = Op::backward_weight, .block = index(b)});
      }
      if (reduces) reduce_complete(b);
    }
  }

  /// Before the backward of the last one of blocks that are recomputed together: recomputes all of them.
  void recompute(size_t last) {
    if (!is_recomputed(model_, recompute_, last) || joins_recomputation(model_, recompute_, last + 1)) return;
    size_t b = last;
    while (joins_recomputation(model_, recompute_, b)) --b;
    for (; b <= last; ++b) {
      gather(units_of_[b]);
      add({.op = Op::recompute, .block = index(b)});
    }
  }

  /// Releases what no later backward reads, and gathers the block's units if its backward reads parameters.
  void make_ready_for_backward(size_t b) {
    release_if([&](size_t u) { return plan_.units[u].first_needed_in_backward > b; });
    std::vector<size_t> read;
    for (size_t u : units_of_[b])
      if (plan_.units[u].first_needed_in_backward <= b) read.push_back(u);
    gather(read);
  }

  void gather_ahead_in_backward(size_t b) {
    if (!plan_.prefetches) return;
    for (size_t u : used_in_backward(ahead_in_backward_[b])) start_gather(u);
  }

  /// Without the units of blocks that have no backward.
  std::vector<size_t> used_in_backward(std::vector<size_t> units) const {
    std::erase_if(units, [&](size_t u) { return plan_.units[u].blocks.back() < first_trained_; });
    return units;
  }

  // ---- gradients
  /// Reduces the units whose last gradient the block has computed.
  void reduce_complete(size_t b) {
    for (size_t u : completed_[b]) reduce(u);
  }

  /// Sums over the tensor axis and over the stages first, then over the shards, then over the copies.
  void reduce(size_t u) {
    if (summed_[u]) {
      add({.op = Op::start_reduce, .axis = Axis::tensor, .unit = index(u)});
      add({.op = Op::wait_reduce, .axis = Axis::tensor, .unit = index(u)});
    }
    if (tied_[u]) {
      add({.op = Op::start_reduce, .axis = Axis::pipeline, .unit = index(u)});
      add({.op = Op::wait_reduce, .axis = Axis::pipeline, .unit = index(u)});
    }
    if (plan_.takes_gradients()) return;
    while (std::ssize(running_) >= plan_.reductions_in_flight) wait_for_oldest();
    const bool shards = plan_.shards() > 1, copies = plan_.copies() > 1;
    if (shards || !copies) start_reduce(u, shards ? Axis::shard : Axis::none);
    if (shards && copies) wait_for_reductions();
    if (copies) start_reduce(u, Axis::replicate);
    if (!plan_.overlap) wait_for_reductions();
  }

  void start_reduce(size_t u, Axis axis) {
    running_.push_back({.op = Op::wait_reduce, .axis = axis, .unit = index(u)});
    add({.op = Op::start_reduce, .axis = axis, .unit = index(u)});
  }

  void wait_for_oldest() {
    add(running_.front());
    running_.pop_front();
  }

  void wait_for_reduction(size_t u) {
    while (std::ranges::find(running_, u, &Instruction::unit) != running_.end()) wait_for_oldest();
  }

  void wait_for_reductions() {
    while (!running_.empty()) wait_for_oldest();
  }

  const ModelSpec& model_;
  const ParallelPlan& plan_;
  const std::vector<bool>& recompute_;
  size_t blocks_;
  size_t first_trained_;                       ///< block at which backward ends
  std::vector<std::vector<size_t>> units_of_;  ///< for each block, the units that it gathers
  std::vector<std::vector<size_t>> ahead_in_forward_, ahead_in_backward_, residents_;
  std::vector<bool> reading_, started_, updated_;
  std::set<size_t> gathered_;
  std::vector<bool>
      tied_;  ///< units with a parameter that another stage has, too. They are reduced after all backwards
  bool stays_gathered_ = false;  ///< units are not released
  std::vector<bool> summed_;     ///< units of which some gradients are added over the tensor axis (tensor_sum.hpp)
  std::vector<size_t> trained_;  ///< trained_units()
  std::vector<std::vector<size_t>> filled_;  ///< for each block, the units whose buffers its backward fills
  /// For each block, the units whose last gradient its backward computes, the last unit first. Without those in `tied_`.
  std::vector<std::vector<size_t>> completed_;
  std::deque<Instruction> running_;  ///< the waits for reductions that were started, in the order of their starts
  uint32_t micro_batch_ = 0;
  Program program_;
};

}  // namespace

Program step_program(const ModelSpec& model, const ParallelPlan& plan, const std::vector<bool>& recompute,
                     int64_t micro_batches) {
  return Writer(model, plan, recompute).write(micro_batches);
}

Program forward_program(const ModelSpec& model, const ParallelPlan& plan) {
  return Writer(model, plan, {}).write_forward();
}

std::vector<RepeatedInstruction> repeated_instructions(const Job& job, const ParallelPlan& plan) {
  const int64_t shown = std::min(job.accumulation, distinct_micro_batches), left_out = job.accumulation - shown;
  std::vector<RepeatedInstruction> list;
  for (const auto& instruction : step_program(*job.model, plan, job.recompute, shown))
    list.push_back({.instruction = instruction, .count = instruction.micro_batch == 1 ? 1 + left_out : 1});
  return list;
}

}  // namespace runner
