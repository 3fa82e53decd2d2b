// Predicts the memory of a step: executes its program with byte counts instead of tensors (executor.cpp executes it with
// tensors), and records the peak.
#include <algorithm>
#include <numeric>
#include <set>

#include "strategies/offload/swapped_arrays.hpp"
#include "strategies/program/block_memory.hpp"
#include "strategies/program/program.hpp"
#include "strategies/program/rank_sums.hpp"
#include "strategies/program/update_memory.hpp"

namespace runner {

namespace {

/// Sizes (in bytes) and state of one unit on this rank.
struct UnitBytes {
  int64_t gathered = 0;   ///< the unsharded unit in the gathered dtype; 0 if blocks use the masters
  int64_t unsharded = 0;  ///< its unsharded gradients in the dtype of accumulation
  int64_t sent = 0;       ///< its unsharded gradients in the dtype of reduction
  int64_t shard = 0;      ///< elements (not bytes) of this rank's shard
  std::optional<QuantizedBytes> quantized = {};
  int64_t copied = 0;     ///< a packed shard in host memory is copied to the device, until it has been gathered
  int64_t message = 0;    ///< of the sum over the tensor axis, if it is a tensor of its own
  bool cast = false;      ///< a gather sends a temporary copy of the shard
  int64_t sending = 0;    ///< bytes of that copy, from the start of the gather until a block waits for it
  bool arriving = false;  ///< the buffer of gradients exists
  bool adds = false;      ///< the buffer has gradients of earlier micro-batches
  bool reducing = false;  ///< a reduction has started
  bool reduced = false;   ///< the sums of gradients exist
};

/// Counts the bytes of each instruction. The step is the second one, in which the optimizer's state exists.
class Replay {
 public:
  Replay(const Job& job, const ParallelPlan& plan)
      : job_(job),
        plan_(plan),
        blocks_(job, plan.parameter),
        on_device_(!(plan.separate_host && plan.optimizer != Tier::device)),
        takes_(plan.takes_gradients()),
        in_place_(plan.shards() == 1 && plan.accumulate == plan.reduce && plan.reduce == plan.gradient && on_device_),
        held_(plan.shards()),
        stored_(plan.shards()),
        state_bytes_(plan.shards()),
        held_by_(job.model->blocks.size()),
        added_(job.model->parameters().size()) {
    const int64_t element = bytes_of(plan.master);
    const auto parameters = job.model->parameters();
    int read_units = 0;
    unit_of_slot_.resize(job.model->parameters().size());
    for (size_t u = 0; u < plan.units.size(); ++u) {
      const auto& unit = plan.units[u];
      auto places = plan.places(unit);
      FlatLayout layout = layout_of(*job.model, plan, unit);
      const bool shared = places.sent == ShardPlaces::Sent::shared;
      units_.push_back({shared ? 0 : layout.total * bytes_of(plan.parameter), layout.total * bytes_of(plan.accumulate),
                        layout.total * bytes_of(plan.reduce), layout.shard});
      for (size_t slot : unit.slots) unit_of_slot_[slot] = u;
      const auto sum = tensor_sum(*job.model, layout);
      if (takes_ || !sum.in_place) units_[u].message = sum.elements * bytes_of(plan.reduce);
      if (unit.quantized) {
        add_quantized(unit, layout);
        continue;
      }
      if (unit.resident) now_.parameters += units_[u].gathered;
      int64_t sent = layout.shard * bytes_of(plan.parameter), masters = layout.shard * element;
      if (places.master == ShardPlaces::Master::memory)
        (on_device_ ? now_.parameters : host_) += on_device_ ? masters : pinned(masters);
      if (places.sent == ShardPlaces::Sent::memory) {
        bool sent_on_device = unit.tier == Tier::device;
        (sent_on_device ? now_.parameters : host_) += sent_on_device ? sent : pinned(sent);
      }
      if (plan.written_apart(unit)) host_ += pinned(sent);
      bool cast_on_host = places.sent == ShardPlaces::Sent::master && !on_device_ && plan.parameter != plan.master;
      if (cast_on_host && plan.pin_memory) casts_.insert(pinned(sent));
      units_[u].cast = plan.shards() > 1 && is_cast(unit, places);
      if (places.sent == ShardPlaces::Sent::file) {
        read_ahead_ = std::max(read_ahead_, sent);
        ++read_units;
      }
      FlatLayout own = layout;  // without the base of adapters
      std::erase_if(own.items, [&](const auto& item) { return parameters[item.slot]->of_base; });
      stored_.add_elements(own, unit.replicated);
      if (unit.frozen) continue;
      state_bytes_.add(layout, unit.replicated, [&](const FlatLayout::Item& item, int64_t elements) {
        return job.state_bytes(*parameters[item.slot], elements, element);
      });
      if (!on_device_) waiting_on_host_ += pinned(layout.shard * bytes_of(plan.gradient));
      if (plan.own_reducer) now_.gradients += standing_gradients(unit, layout);
      held_.add_elements(layout, unit.replicated);
      for (const auto& item : layout.items) largest_part_ = std::max(largest_part_, std::min(item.numel, layout.shard));
    }
    read_ahead_ *= std::min(read_units, plan.swap.parameter_buffers);
    held_most_ = held_.most();
    now_.held = held_most_;
    now_.stored = stored_.most();
    const int64_t state = state_bytes_.most();
    if (plan.optimizer == Tier::device) now_.optimizer = state;
    if (plan.optimizer == Tier::host) host_ += state;
  }

  /// Host memory at the end of backward and in the update: permanent tensors, gradients, and buffers. A background
  /// update frees its gradients before the next ones are reduced, so gradients are counted once.
  int64_t host_bytes() const {
    if (!plan_.separate_host) return 0;
    int64_t casts = std::accumulate(casts_.begin(), casts_.end(), int64_t{0});
    return host_ + waiting_on_host_ + casts +
           std::max({read_ahead_, on_device_ ? 0 : std::max(norm_copy(), update_copies()), validation_host_});
  }

  MemoryParts play() {
    now_.workspaces = job_.accelerator.workspace_bytes;
    now_.activations += job_.model->buffer_elements * bytes_of(job_.precision.compute);
    for (const auto& buffer : job_.model->buffers) now_.activations += buffer.numel() * bytes_of(DType::float32);
    now_.between_steps = now_.total();
    const MemoryParts idle = now_;
    // The batches of all micro-batches. Their copies in host memory are not counted, as the loader's are not.
    now_.activations += job_.model->batch_row_bytes() * job_.micro_batch_size * job_.most_micro_batches();
    if (!plan_.separate_host) now_.gathered += read_ahead_;
    const int64_t micro_batches = std::min(job_.most_micro_batches(), distinct_micro_batches);
    for (const auto& instruction : step_program(*job_.model, plan_, job_.recompute, micro_batches)) {
      if (instruction.micro_batch != micro_batch_) begin_micro_batch(instruction.micro_batch);
      count(instruction);
      if (instruction.op == Op::norm) break;
    }
    if (job_.validates && job_.optimizer->averages) validate(idle);
    peak_.between_steps = now_.between_steps;
    if (job_.host_checkpoints)
      for (int64_t bytes : checkpoint_bytes(job_)) peak_.host += job_.accelerator.pinned ? pinned_bytes(bytes) : bytes;
    return peak_;
  }

 private:
  /// The unit has neither a master nor a state.
  void add_quantized(const Unit& unit, const FlatLayout& layout) {
    auto& own = units_.back();
    own.gathered = layout.total * bytes_of(plan_.compute);
    own.quantized = quantized_bytes(job_, plan_, unit);
    if (unit.tier == Tier::host && is_sharded(plan_, unit)) own.copied = own.quantized->shard;
    now_.parameters += own.quantized->constants;
    (unit.tier == Tier::device ? now_.parameters : host_) +=
        unit.tier == Tier::device ? own.quantized->shard : pinned(own.quantized->shard);
  }

  void count(const Instruction& instruction) {
    switch (instruction.op) {
      case Op::start_gather:
        return start_gather(instruction.unit);
      case Op::wait_gather:
        return wait_gather(instruction.unit);
      case Op::release:
        return release(instruction.unit);
      case Op::forward:
        return forward(instruction.block);
      case Op::recompute:
        return recompute(instruction.block);
      case Op::backward:
        return backward(instruction.block);
      case Op::start_reduce:
        if (instruction.axis == Axis::tensor) return start_tensor_sum(units_[instruction.unit]);
        if (instruction.axis != Axis::replicate || plan_.shards() == 1) start_reduce(units_[instruction.unit]);
        return;
      case Op::wait_reduce:
        if (instruction.axis == Axis::tensor) return wait_tensor_sum(units_[instruction.unit]);
        if (instruction.axis != Axis::shard || plan_.copies() == 1) wait_reduce(units_[instruction.unit]);
        return;
      case Op::norm:
        return update();
      case Op::update:
      case Op::gather_updated:
      case Op::start_read:
        return;
    }
  }

  /// Records `now_` if it is the peak so far.
  void note() {
    if (now_.total() > peak_.total()) peak_ = now_;
  }

  // ---- blocks
  void begin_micro_batch(uint32_t micro_batch) {
    now_.communication -= std::exchange(moving_to_host_, 0);  // that copy ends during the forward
    micro_batch_ = micro_batch;
    for (size_t block = 0; block < held_by_.size(); ++block) hold(block, 0);
    pass_on(0);
    for (auto& unit : units_) unit.adds = unit.arriving && !unit.reducing;
  }

  /// Sets the bytes of the block's activations.
  void hold(size_t block, int64_t bytes) {
    now_.activations += bytes - held_by_[block];
    held_by_[block] = bytes;
  }

  /// Sets the bytes that one block has made for the next one: its output, or the gradient of its input. While a block runs, they are
  /// counted with it. Gathers and reductions are between blocks.
  void pass_on(int64_t bytes) {
    now_.activations += bytes - passed_on_;
    passed_on_ = bytes;
  }

  void hold_at_peak(size_t block, int64_t bytes) {
    hold(block, bytes);
    note();
  }

  void forward(size_t block) {
    pass_on(0);
    if (validating_ || block < job_.model->first_trained_block()) {
      hold_at_peak(block, blocks_.forward_without_graph(block, /*trains=*/!validating_));
      hold(block, 0);
    } else {
      run_with_graph(block);
    }
    pass_on(blocks_.output(block));
  }

  void run_with_graph(size_t block) {
    int64_t saved = blocks_.saved(block);
    if (job_.recomputes(block)) saved = 0;
    if (job_.begins_recomputation(block)) {
      saved = blocks_.input(block);
      if (job_.host_checkpoints && last_kept_) hold(*last_kept_, 0);  // its input was copied to host memory
      last_kept_ = block;
    }
    hold_at_peak(block, saved + blocks_.output(block));
    for (int64_t peak : blocks_.forward_peaks(block)) hold_at_peak(block, peak);
    hold(block, saved);
  }

  /// The gradient of the block's output exists in addition.
  void recompute(size_t block) {
    if (job_.host_checkpoints && job_.begins_recomputation(block)) bring_back_input_before(block);
    const int64_t gradient = blocks_.output(block);
    pass_on(0);
    for (int64_t peak : blocks_.forward_peaks(block)) hold_at_peak(block, peak + gradient);
    hold_at_peak(block, blocks_.saved(block) + blocks_.output(block) + gradient);
    hold(block, blocks_.saved(block));
    const bool next_follows = joins_recomputation(*job_.model, job_.recompute, block + 1);
    pass_on(gradient + (next_follows ? blocks_.output(block) : 0));
  }

  void bring_back_input_before(size_t block) {
    last_kept_.reset();
    size_t before = block - 1;
    while (before > 0 && !job_.begins_recomputation(before)) --before;
    if (before > 0) hold(before, blocks_.input(before));
  }

  void backward(size_t block) {
    using Kind = BackwardEvent::Kind;
    pass_on(0);
    for (const auto& event : blocks_.backward(block, takes_ && micro_batch_ == 0)) switch (event.kind) {
        case Kind::peak:
          hold_at_peak(block, event.bytes);
          break;
        case Kind::level:
          hold(block, event.bytes);
          break;
        case Kind::computed:
          gradient_computed(event.slot);
          break;
        case Kind::stored:
          now_.communication -= widened(event.slot);
          added_[event.slot] = true;
          break;
      }
    pass_on(block > job_.model->first_trained_block() ? blocks_.input(block) : 0);
  }

  // ---- gradients
  /// The buffers of a Reducer's unit: all gradients, and this rank's part of the sums.
  int64_t standing_gradients(const Unit& unit, const FlatLayout& layout) const {
    return (layout.total + (is_sharded(plan_, unit) ? layout.shard : 0)) * bytes_of(plan_.gradient);
  }

  void gradient_computed(size_t slot) {
    if (plan_.own_reducer) return;
    if (takes_) {
      if (!added_[slot]) now_.gradients += blocks_.elements(slot) * bytes_of(plan_.gradient);
      return;
    }
    UnitBytes& unit = units_[unit_of_slot_[slot]];
    if (!unit.arriving) (in_place_ && !unit.reduced ? now_.gradients : now_.communication) += unit.unsharded;
    unit.arriving = true;
    now_.communication += widened(slot);
  }

  /// Temporary bytes on CPU when a gradient is added to a buffer of a wider dtype: the gradient is converted first.
  int64_t widened(size_t slot) const {
    if (takes_ || plan_.own_reducer || !units_[unit_of_slot_[slot]].adds || !job_.accelerator.host_kernels ||
        plan_.accumulate == plan_.parameter)
      return 0;
    return blocks_.elements(slot) * bytes_of(plan_.accumulate);
  }

  int64_t on_the_way(const UnitBytes& unit) const { return plan_.shards() > 1 ? unit.sent / plan_.shards() : 0; }

  /// Counts the unsharded gradients in the dtype of accumulation, then in that of reduction.
  void begin_reduction(UnitBytes& unit) {
    if (std::exchange(unit.reducing, true) || plan_.accumulate == plan_.reduce) return;
    now_.communication += unit.sent;
    note();
    now_.communication -= unit.unsharded;
  }

  /// The message exists beside the gradients if it is not a part of their buffer.
  void start_tensor_sum(UnitBytes& unit) {
    if (!takes_) begin_reduction(unit);
    now_.communication += unit.message;
    note();
  }
  void wait_tensor_sum(UnitBytes& unit) { now_.communication -= unit.message; }

  /// Counts also the shard of the sums.
  void start_reduce(UnitBytes& unit) {
    if (plan_.own_reducer) return;
    begin_reduction(unit);
    if (in_place_) return;
    now_.communication += on_the_way(unit);
    note();
  }

  /// At the end of a reduction all of these exist, and the sums in the dtype in which they are kept.
  void wait_reduce(UnitBytes& unit) {
    if (plan_.own_reducer) return;
    unit.arriving = unit.reducing = false;
    if (in_place_) {
      if (unit.reduced) now_.communication -= unit.unsharded;
      unit.reduced = true;
      return;
    }
    const int64_t waiting = unit.shard * bytes_of(plan_.gradient), cast = plan_.reduce != plan_.gradient ? waiting : 0;
    now_.communication += cast;
    note();
    now_.communication -= cast + on_the_way(unit) + unit.sent;
    if (!on_device_) now_.communication += waiting - std::exchange(moving_to_host_, waiting);
    if (!unit.reduced && on_device_) now_.gradients += waiting;
    unit.reduced = true;
  }

  /// Validation uses the average of the weights. Meanwhile there is a copy of the masters of what is trained. `now`: what exists between
  /// steps.
  void validate(const MemoryParts& now) {
    now_ = now;
    const int64_t element = bytes_of(plan_.master), copy = held_most_ * element;
    validation_host_ = on_device_ ? 0 : copy + largest_part_ * element;
    if (on_device_) {
      now_.parameters += copy;
      now_.communication += largest_part_ * element;  // the average of a parameter
      note();
      now_.communication -= largest_part_ * element;
    }
    now_.activations += job_.model->batch_row_bytes() * job_.micro_batch_size;
    std::ranges::fill(held_by_, int64_t{0});
    passed_on_ = 0;
    validating_ = true;
    for (const auto& instruction : forward_program(*job_.model, plan_)) count(instruction);
  }

  void update() {
    now_.communication -= std::exchange(moving_to_host_, 0);
    for (size_t block = 0; block < held_by_.size(); ++block) hold(block, 0);
    now_.communication += on_device_ ? norm_copy() : 0;
    note();
    now_.communication -= on_device_ ? norm_copy() : 0;
    const int64_t copied = on_device_ ? update_copies() : 0;
    if (!plan_.separate_host) now_.gathered -= read_ahead_;
    now_.communication += copied;
    note();
    now_.communication -= copied;
  }

  // ---- parameters
  /// Counts the gathered unit, and this rank's shard in the gathered dtype.
  void start_gather(size_t u) {
    if (units_[u].gathered == 0) return;
    if (const auto& quantized = units_[u].quantized) {
      units_[u].sending = quantized->sent + units_[u].copied;
      now_.gathered += units_[u].sending;
      return note();
    }
    units_[u].sending = units_[u].cast ? units_[u].gathered / plan_.shards() : 0;
    now_.gathered += units_[u].gathered + units_[u].sending;
    note();
  }

  void wait_gather(size_t u) {
    if (const auto& quantized = units_[u].quantized) {
      now_.gathered -= units_[u].copied;
      units_[u].sending -= units_[u].copied;
      now_.gathered += units_[u].gathered + quantized->scratch;
      note();
      now_.gathered -= quantized->scratch;
    }
    now_.gathered -= std::exchange(units_[u].sending, 0);
  }

  void release(size_t u) { now_.gathered -= units_[u].gathered; }

  /// Bytes that a tensor in host memory takes, which is pinned if the plan says so.
  int64_t pinned(int64_t bytes) const {
    bool rounded = plan_.pin_memory && bytes > 0;
    return rounded ? pinned_bytes(bytes) : bytes;
  }

  int64_t update_copies() const {
    std::vector<int64_t> shards;
    for (const auto& unit : units_) shards.push_back(unit.shard);
    return update_bytes(job_, plan_, {largest_part_, held_most_, std::move(shards)});
  }

  /// The fp32 copy of a 16-bit gradient that a CPU makes to compute its norm.
  int64_t norm_copy() const {
    const bool on_host = job_.accelerator.host_kernels || !on_device_;
    return on_host && bytes_of(plan_.gradient) < 4 ? largest_part_ * 4 : 0;
  }

  bool is_cast(const Unit& unit, const ShardPlaces& places) const {
    if (places.sent == ShardPlaces::Sent::master) return plan_.parameter != plan_.master || !on_device_;
    return places.sent == ShardPlaces::Sent::file || unit.tier == Tier::host;
  }

  const Job& job_;
  const ParallelPlan& plan_;
  BlockMemory blocks_;
  bool on_device_;  ///< masters (if in memory) and reduced gradients are in device memory
  bool takes_;      ///< ParallelPlan::takes_gradients()
  bool in_place_;   ///< the buffer of a unit's gradients becomes its sums
  MemoryParts now_, peak_;
  uint32_t micro_batch_ = 0;
  bool validating_ = false;
  /// Parameter elements with optimizer state, and all that checkpoints contain; bytes of optimizer state.
  RankSums held_, stored_, state_bytes_;
  std::vector<int64_t> held_by_;     ///< current bytes of each block's activations
  int64_t passed_on_ = 0;            ///< bytes between two blocks
  std::optional<size_t> last_kept_;  ///< the last recomputed block in forward, whose input is still on the device
  std::vector<bool> added_;          ///< for each parameter: its gradient exists
  int64_t read_ahead_ = 0;
  int64_t moving_to_host_ = 0;              ///< bytes of the reduced gradients that the last copy to host memory reads
  int64_t validation_host_ = 0;             ///< bytes in host memory of the copy that validation needs
  int64_t host_ = 0, waiting_on_host_ = 0;  ///< bytes in host memory: permanent tensors; reduced gradients
  std::set<int64_t> casts_;  ///< sizes of pinned blocks for casts of shards; the allocator keeps one block of each size
  std::vector<UnitBytes> units_;
  std::vector<size_t> unit_of_slot_;
  int64_t held_most_ = 0;
  int64_t largest_part_ = 0;  ///< elements of the largest part of a parameter in a shard
};

}  // namespace

MemoryParts program_memory(const Job& job, const ParallelPlan& plan) {
  Replay memory(job, plan);
  auto parts = memory.play();
  parts.host += memory.host_bytes();
  parts.held_on_host = plan.separate_host && plan.optimizer != Tier::device;
  auto use = plan.swap_use();
  parts.state_on_disk = use.state || use.master;
  return parts;
}

}  // namespace runner
