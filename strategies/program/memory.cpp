// Predicts the memory of a step: executes its program with byte counts instead of tensors (executor.cpp executes it with
// tensors), and records the peak.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "strategies/contract/host_update.hpp"
#include "strategies/offload/swapped_arrays.hpp"
#include "strategies/program/block_memory.hpp"
#include "strategies/program/gradient_memory.hpp"
#include "strategies/program/program.hpp"
#include "strategies/program/rank_sums.hpp"
#include "strategies/program/update_work.hpp"

namespace runner {

namespace {

/// Sizes (in bytes) and state of one unit on this rank.
struct UnitBytes {
  int64_t gathered = 0;  ///< the unsharded unit in the gathered dtype; 0 if blocks use the masters
  int64_t shard = 0;     ///< elements (not bytes) of this rank's shard
  std::optional<QuantizedBytes> quantized = {};
  int64_t copied = 0;   ///< a packed shard in host memory is copied to the device, until it has been gathered
  bool cast = false;    ///< a gather sends a temporary copy of the shard
  int64_t sending = 0;  ///< bytes of that copy, from the start of the gather until a block waits for it
};

/// Counts the bytes of each instruction. The step is the second one, in which the optimizer's state exists.
class Replay {
 public:
  Replay(const Job& job, const ParallelPlan& plan)
      : job_(job),
        plan_(plan),
        blocks_(job, plan.parameter),
        on_device_(!(plan.separate_host && plan.optimizer != Tier::device)),
        held_(plan.shards()),
        stored_(plan.shards()),
        state_bytes_(plan.shards()),
        gradients_(job, plan, peak_),
        passes_{{0, Pass(job.model->blocks.size())}} {
    const int64_t element = bytes_of(plan.master);
    const auto parameters = job.model->parameters();
    int read_units = 0;
    for (size_t u = 0; u < plan.units.size(); ++u) {
      const auto& unit = plan.units[u];
      auto places = plan.places(unit);
      FlatLayout layout = layout_of(parameters, plan, unit);
      const bool shared = places.sent == ShardPlaces::Sent::shared;
      units_.push_back({.gathered = shared ? 0 : layout.total * bytes_of(plan.parameter), .shard = layout.shard});
      if (unit.quantized) {
        add_quantized(unit, layout);
        continue;
      }
      if (unit.resident) peak_.now.parameters += units_[u].gathered;
      int64_t sent = layout.shard * bytes_of(plan.parameter), masters = layout.shard * element;
      if (places.master == ShardPlaces::Master::memory)
        (on_device_ ? peak_.now.parameters : host_) += on_device_ ? masters : pinned(masters);
      if (places.sent == ShardPlaces::Sent::memory) {
        bool sent_on_device = unit.tier == Tier::device;
        (sent_on_device ? peak_.now.parameters : host_) += sent_on_device ? sent : pinned(sent);
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
      held_.add_elements(layout, unit.replicated);
      for (const auto& item : layout.items) largest_part_ = std::max(largest_part_, std::min(item.numel, layout.shard));
    }
    read_ahead_ *= std::min(read_units, plan.swap.parameter_buffers);
    held_most_ = held_.most();
    peak_.now.held = held_most_;
    peak_.now.stored = stored_.most();
    const int64_t state = state_bytes_.most();
    if (plan.optimizer == Tier::device) peak_.now.optimizer = state;
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
    peak_.now.workspaces = job_.accelerator.workspace_bytes;
    peak_.now.activations += job_.model->buffer_elements * bytes_of(job_.precision.compute);
    for (const auto& buffer : job_.model->buffers) peak_.now.activations += buffer.numel() * bytes_of(DType::float32);
    peak_.now.between_steps = peak_.now.total();
    const MemoryParts idle = peak_.now;
    // The batches of all micro-batches. Their copies in host memory are not counted, as the loader's are not.
    peak_.now.activations += job_.model->batch_row_bytes() * job_.micro_batch_size * job_.most_micro_batches();
    if (!plan_.separate_host) peak_.now.gathered += read_ahead_;
    const int64_t all = job_.most_micro_batches(), alike = std::min(all, distinct_micro_batches);
    for (const auto& instruction : step_program(*job_.model, plan_, job_.recompute, job_.model->stage ? all : alike)) {
      if (instruction.micro_batch != micro_batch_) select(instruction.micro_batch);
      count(instruction);
      if (instruction.op == Op::norm) break;
    }
    if (job_.validates && job_.optimizer->averages) validate(idle);
    peak_.most.between_steps = peak_.now.between_steps;
    if (job_.host_checkpoints)
      for (int64_t bytes : checkpoint_bytes(job_))
        peak_.most.host += job_.accelerator.pinned ? pinned_bytes(bytes) : bytes;
    return peak_.most;
  }

 private:
  /// The unit has neither a master nor a state.
  void add_quantized(const Unit& unit, const FlatLayout& layout) {
    auto& own = units_.back();
    own.gathered = layout.total * bytes_of(plan_.compute);
    own.quantized = quantized_bytes(job_, plan_, unit);
    if (unit.tier == Tier::host && is_sharded(plan_, unit)) own.copied = own.quantized->shard;
    peak_.now.parameters += own.quantized->constants;
    (unit.tier == Tier::device ? peak_.now.parameters : host_) +=
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
      case Op::backward_input:
        return backward(instruction.op, instruction.block);
      case Op::backward_weight:
        return follow(Op::backward_weight, instruction.block);
      case Op::start_reduce:
        return gradients_.start_reduce(instruction.unit, instruction.axis);
      case Op::wait_reduce:
        return gradients_.wait_reduce(instruction.unit, instruction.axis);
      case Op::receive_input:
        return pass_on(input_bytes(job_, instruction.block));
      case Op::receive_gradient:
        return pass_on(output_bytes(job_, instruction.block));
      case Op::send_output:
        return send(instruction, output_bytes(job_, instruction.block));
      case Op::send_gradient:
        return send(instruction, input_bytes(job_, instruction.block));
      case Op::norm:
        return update();
      case Op::update:
      case Op::gather_updated:
      case Op::start_read:
        return;
    }
  }

  // ---- blocks
  /// Bytes of the activations of a micro-batch. Without a pipeline one micro-batch ends before the next one begins.
  struct Pass {
    explicit Pass(size_t blocks) : held(blocks) {}
    std::vector<int64_t> held;             ///< of each block
    int64_t passed_on = 0;                 ///< between two blocks
    std::optional<size_t> last_kept = {};  ///< the last recomputed block in forward, whose input is still on the device
  };

  void select(uint32_t micro_batch) {
    micro_batch_ = micro_batch;
    gradients_.begin_micro_batch();
    if (job_.model->stage)
      pass_ = &passes_.try_emplace(micro_batch, job_.model->blocks.size()).first->second;
    else
      drop_pass();
  }

  void drop_pass() {
    for (size_t block = 0; block < pass_->held.size(); ++block) hold(block, 0);
    pass_on(0);
  }

  /// Sets the bytes of the block's activations.
  void hold(size_t block, int64_t bytes) {
    peak_.now.activations += bytes - pass_->held[block];
    pass_->held[block] = bytes;
  }

  /// Sets the bytes that one block has made for the next one: its output, or the gradient of its input. While a block runs, they are
  /// counted with it. Gathers and reductions are between blocks.
  void pass_on(int64_t bytes) {
    peak_.now.activations += bytes - pass_->passed_on;
    pass_->passed_on = bytes;
  }

  /// A message exists until the next one of its channel has been sent, or until the end of the step.
  void send(const Instruction& instruction, int64_t bytes) {
    const auto& stage = *job_.model->stage;
    auto& sent = sent_[{instruction.op, stage.stage_of[instruction.block] % stage.ranks}];
    peak_.note();
    pass_on(0);
    peak_.now.communication += bytes - sent;
    sent = bytes;
  }

  void hold_at_peak(size_t block, int64_t bytes) {
    hold(block, bytes);
    peak_.note();
  }

  void forward(size_t block) {
    converted_.make(micro_batch_, block);
    pass_on(0);
    const bool graph = !validating_ && block >= job_.model->first_trained_block();
    if (graph) {
      run_with_graph(block);
    } else {
      hold_at_peak(block, blocks_.forward_without_graph(block, /*trains=*/!validating_));
      hold(block, 0);
    }
    if (!graph || job_.recomputes(block)) converted_.drop(micro_batch_, block);
    pass_on(blocks_.output(block));
  }

  void run_with_graph(size_t block) {
    if (!job_.recomputes(block)) {
      hold_at_peak(block, blocks_.forward_peak(block));
      return hold(block, blocks_.saved(block));
    }
    const bool keeps = job_.begins_recomputation(block);
    if (keeps) {
      if (job_.host_checkpoints && pass_->last_kept) hold(*pass_->last_kept, 0);  // its input was copied to host memory
      pass_->last_kept = block;
    }
    hold_at_peak(block, blocks_.forward_without_graph(block, /*trains=*/true));
    hold(block, keeps ? blocks_.input(block) : 0);
  }

  /// The gradient of the block's output exists in addition.
  void recompute(size_t block) {
    if (job_.host_checkpoints && job_.begins_recomputation(block)) bring_back_input_before(block);
    const int64_t gradient = blocks_.output(block);
    converted_.make(micro_batch_, block);
    pass_on(0);
    hold_at_peak(block, blocks_.forward_peak(block) + gradient);
    hold(block, blocks_.saved(block));
    const bool next_follows = joins_recomputation(*job_.model, job_.recompute, block + 1);
    pass_on(gradient + (next_follows ? blocks_.output(block) : 0));
  }

  void bring_back_input_before(size_t block) {
    pass_->last_kept.reset();
    size_t before = block - 1;
    while (before > 0 && !job_.begins_recomputation(before)) --before;
    if (before > 0) hold(before, blocks_.input(before));
  }

  /// The events in a part of a block's backward: the same in all micro-batches but the first, whose gradients can become the strategy's.
  const std::vector<BackwardEvent>& events_of(Op part, size_t block) {
    const bool takes = gradients_.takes() && micro_batch_ == 0;
    const auto [found, fresh] = events_.try_emplace({part, block, takes});
    if (fresh)
      found->second =
          part == Op::backward_weight ? blocks_.backward_weight(block, takes) : blocks_.backward(block, takes);
    return found->second;
  }

  void follow(Op part, size_t block) {
    using Kind = BackwardEvent::Kind;
    for (const auto& event : events_of(part, block)) switch (event.kind) {
        case Kind::peak:
          hold_at_peak(block, event.bytes);
          break;
        case Kind::level:
          hold(block, event.bytes);
          break;
        case Kind::took_waiting:
          for (size_t b = 0; b < job_.model->blocks.size(); ++b)
            if (blocks_.waiting(b) > 0) hold(b, 0);
          break;
        case Kind::computed:
          gradients_.computed(event.slot, blocks_.elements(event.slot));
          break;
        case Kind::stored:
          gradients_.stored(event.slot, blocks_.elements(event.slot));
          break;
      }
  }

  /// `part`: the whole, or the first part.
  void backward(Op part, size_t block) {
    pass_on(0);
    follow(part, block);
    converted_.drop(micro_batch_, block);
    pass_on(job_.model->passes_gradient(block) ? blocks_.input(block) : 0);
    // The gradient that goes to the stage before is counted until it is sent.
    if (part == Op::backward && job_.model->stage && block == job_.model->first_trained_block())
      for (size_t b = 0; b < pass_->held.size(); ++b) hold(b, 0);
  }

  /// Validation uses the average of the weights. Meanwhile there is a copy of the masters of what is trained. `now`: what exists between
  /// steps.
  void validate(const MemoryParts& now) {
    peak_.now = now;
    const int64_t element = bytes_of(plan_.master), copy = held_most_ * element;
    validation_host_ = on_device_ ? 0 : copy + largest_part_ * element;
    if (on_device_) {
      peak_.now.parameters += copy;
      peak_.now.communication += largest_part_ * element;  // the average of a parameter
      peak_.note();
      peak_.now.communication -= largest_part_ * element;
    }
    peak_.now.activations += job_.model->batch_row_bytes() * job_.micro_batch_size;
    passes_.clear();
    pass_ = &passes_.try_emplace(0, job_.model->blocks.size()).first->second;
    validating_ = true;
    for (const auto& instruction : forward_program(*job_.model, plan_)) count(instruction);
  }

  void update() {
    gradients_.end_backward();
    for (auto& [micro_batch, pass] : passes_) {
      pass_ = &pass;
      drop_pass();
    }
    for (auto& [channel, bytes] : sent_) peak_.now.communication -= std::exchange(bytes, 0);
    peak_.now.communication += on_device_ ? norm_copy() : 0;
    peak_.note();
    peak_.now.communication -= on_device_ ? norm_copy() : 0;
    const int64_t copied = on_device_ ? update_copies() : 0;
    if (!plan_.separate_host) peak_.now.gathered -= read_ahead_;
    int64_t exchanged = 0;  // by a reducer, after the update
    for (const auto& unit : plan_.reducer.bytes) exchanged = std::max(exchanged, unit.after_update);
    peak_.now.communication += std::max(copied, exchanged);
    peak_.note();
    peak_.now.communication -= std::max(copied, exchanged);
  }

  // ---- parameters
  /// Counts the gathered unit, and this rank's shard in the gathered dtype.
  void start_gather(size_t u) {
    if (units_[u].gathered == 0) return;
    if (const auto& quantized = units_[u].quantized) {
      units_[u].sending = quantized->sent + units_[u].copied;
      peak_.now.gathered += units_[u].sending;
      return peak_.note();
    }
    units_[u].sending = units_[u].cast ? units_[u].gathered / plan_.shards() : 0;
    peak_.now.gathered += units_[u].gathered + units_[u].sending;
    peak_.note();
  }

  void wait_gather(size_t u) {
    if (const auto& quantized = units_[u].quantized) {
      peak_.now.gathered -= units_[u].copied;
      units_[u].sending -= units_[u].copied;
      peak_.now.gathered += units_[u].gathered + quantized->scratch;
      peak_.note();
      peak_.now.gathered -= quantized->scratch;
    }
    peak_.now.gathered -= std::exchange(units_[u].sending, 0);
  }

  void release(size_t u) { peak_.now.gathered -= units_[u].gathered; }

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

  /// The fp32 copy of a part of a 16-bit gradient that a CPU makes to compute its norm (contract/piece_norms.hpp).
  int64_t norm_copy() const {
    const bool on_host = job_.accelerator.host_kernels || !on_device_;
    return on_host && bytes_of(plan_.gradient) < 4 ? std::min(largest_part_, tensor_update_elements(true)) * 4 : 0;
  }

  bool is_cast(const Unit& unit, const ShardPlaces& places) const {
    if (places.sent == ShardPlaces::Sent::master) return plan_.parameter != plan_.master || !on_device_;
    return places.sent == ShardPlaces::Sent::file || unit.tier == Tier::host;
  }

  const Job& job_;
  const ParallelPlan& plan_;
  BlockMemory blocks_;
  std::map<std::tuple<Op, size_t, bool>, std::vector<BackwardEvent>> events_;  ///< events_of()
  MemoryPeak peak_;
  ConvertedMemory converted_{blocks_, peak_};
  bool on_device_;  ///< masters (if in memory) and reduced gradients are in device memory
  uint32_t micro_batch_ = 0;
  bool validating_ = false;
  /// Parameter elements with optimizer state, and all that checkpoints contain; bytes of optimizer state.
  RankSums held_, stored_, state_bytes_;
  GradientMemory gradients_;
  std::map<uint32_t, Pass> passes_;  ///< by the number of the micro-batch
  Pass* pass_ = &passes_.begin()->second;
  std::map<std::pair<Op, int>, int64_t> sent_;  ///< bytes of the last message of each channel that this rank sends on
  int64_t read_ahead_ = 0;
  int64_t validation_host_ = 0;             ///< bytes in host memory of the copy that validation needs
  int64_t host_ = 0, waiting_on_host_ = 0;  ///< bytes in host memory: permanent tensors; reduced gradients
  std::set<int64_t> casts_;  ///< sizes of pinned blocks for casts of shards; the allocator keeps one block of each size
  std::vector<UnitBytes> units_;
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
