#include "strategies/contract/memory.hpp"

#include <algorithm>
#include <bit>
#include <queue>

namespace runner {

namespace {

int64_t whole(double bytes) { return static_cast<int64_t>(bytes); }

/// All micro-batches between the first and the last are alike, so it suffices to simulate three.
constexpr int64_t played_micro_batches = 3;

}  // namespace

StepMemory::StepMemory(const Job& job, DType leaf)
    : job_(job),
      leaf_(leaf),
      tokens_(job.micro_batch_size * job.model->seq_len),
      compute_(bytes_of(job.precision.compute)),
      wide_(std::max<int64_t>(4, compute_)),
      held_(job.model->blocks.size(), 0) {
  size_t slot = 0;
  for (const auto& block : job.model->blocks) {
    first_slot_.push_back(slot);
    slot += block.parameters.size();
    for (const auto& parameter : block.parameters) elements_.push_back(parameter.numel());
  }
}

void StepMemory::note() {
  if (now_.total() > peak_.total()) peak_ = now_;
}

namespace {

bool recomputes(const Job& job, size_t block) {
  return block < job.recompute.size() && job.recompute[block] && block > 0;
}

int64_t input_bytes_of(const Job& job, size_t block) {
  return whole(static_cast<double>(job.micro_batch_size * job.model->seq_len) *
               job.model->blocks[block - 1].output_elements_per_token *
               static_cast<double>(bytes_of(job.precision.compute)));
}

}  // namespace

std::vector<int64_t> checkpoint_bytes(const Job& job) {
  std::vector<int64_t> bytes;
  for (size_t block = 0; block < job.model->blocks.size(); ++block)
    if (recomputes(job, block)) bytes.push_back(input_bytes_of(job, block));
  return bytes;
}

int64_t pinned_bytes(int64_t bytes) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))); }

bool StepMemory::recomputed(size_t block) const { return recomputes(job_, block); }

int64_t StepMemory::input_bytes(size_t block) const { return input_bytes_of(job_, block); }

void StepMemory::keep_input(size_t block) {
  if (!job_.host_checkpoints) return;
  if (last_kept_) hold(*last_kept_, 0);
  last_kept_ = block;
}

void StepMemory::bring_back_input_before(size_t block) {
  if (!job_.host_checkpoints) return;
  last_kept_.reset();
  size_t before = block - 1;
  while (before > 0 && !recomputed(before)) --before;
  if (before > 0) hold(before, input_bytes(before));
}

int64_t StepMemory::cast_bytes(size_t block) const {
  const auto& spec = job_.model->blocks[block];
  return leaf_ != job_.precision.compute && spec.kind == BlockKind::transformer ? spec.parameter_count() * compute_ : 0;
}

int64_t StepMemory::saved_bytes(size_t block) const {
  const auto& saved = job_.model->blocks[block].saved;
  const bool repeats = !job_.accelerator.host_kernels && job_.precision.compute == DType::float32;
  const double elements = saved.compute_elements_per_token + (repeats ? saved.repeated_in_fp32_per_token : 0);
  return whole(static_cast<double>(tokens_) * (elements * static_cast<double>(compute_) +
                                               saved.float32_per_token * static_cast<double>(wide_))) +
         saved.gradient_elements * bytes_of(leaf_) + cast_bytes(block);
}

int64_t StepMemory::waiting_bytes(size_t block) const {
  const auto& spec = job_.model->blocks[block];
  return spec.shared.empty() ? 0 : spec.saved.gradient_elements * bytes_of(leaf_);
}

int64_t StepMemory::moment_bytes(const MemoryMoment& moment) const {
  int64_t chunk = job_.model->loss_chunk_tokens;
  bool several_chunks = chunk > 0 && chunk < tokens_;
  auto tokens = static_cast<double>(tokens_), chunk_tokens = static_cast<double>(several_chunks ? chunk : tokens_);
  auto element = static_cast<double>(compute_), wide = static_cast<double>(wide_);
  double narrow = compute_ < wide_ ? element : 0;
  double copy = !job_.accelerator.host_kernels || compute_ >= 4 ? 0 : 4;
  return whole(tokens * (moment.compute_elements_per_token * element + moment.mask_bytes_per_token +
                         moment.widened_per_token * copy) +
               chunk_tokens * (moment.compute_elements_per_chunk_token * element +
                               moment.float32_per_chunk_token * wide + moment.narrowed_per_chunk_token * narrow)) +
         (several_chunks ? moment.summed_over_chunks * wide_ : 0);
}

int64_t StepMemory::input_scratch(const MemoryMoment& moment, int64_t tokens) const {
  if (!job_.accelerator.host_kernels) return 0;
  return scratch_bytes(job_.products, job_.precision.compute, {tokens, moment.in_features, moment.out_features});
}

int64_t StepMemory::weight_scratch(const MemoryMoment& moment, int64_t tokens) const {
  if (!job_.accelerator.host_kernels) return 0;
  return scratch_bytes(job_.products, job_.precision.compute,
                       {moment.out_features, moment.in_features, tokens, /*transposed=*/true});
}

void StepMemory::hold(size_t block, int64_t bytes) {
  now_.activations += bytes - held_[block];
  held_[block] = bytes;
}

void StepMemory::play_bytes(size_t block, int64_t bytes) {
  hold(block, bytes);
  note();
}

void StepMemory::forward_moment(size_t block, const MemoryMoment& moment, int64_t beside) {
  // If the gradient is summed over chunks, each chunk's product is added to it in place when the dtypes are equal. Otherwise the
  // product is a separate tensor, and a CPU also makes a wide copy of it.
  int64_t product = compute_;
  if (job_.model->loss_chunk_tokens > 0 && job_.model->loss_chunk_tokens < tokens_)
    product = compute_ == wide_ ? 0 : compute_ + (job_.accelerator.host_kernels ? wide_ : 0);
  const auto& spec = job_.model->blocks[block];
  int64_t bytes = beside + moment_bytes(moment), chunk = job_.model->loss_chunk_tokens;
  // The cast of the vocabulary projection's weight exists during all chunks.
  if (spec.kind == BlockKind::head && leaf_ != job_.precision.compute) bytes += spec.saved.gradient_elements * compute_;
  int64_t tokens = chunk > 0 ? std::min(chunk, tokens_) : tokens_;
  play_bytes(block, bytes + input_scratch(moment, tokens));
  play_bytes(block, bytes + moment.arriving * product);
  play_bytes(block, bytes + moment.arriving * std::min(product, compute_) + weight_scratch(moment, tokens));
}

void StepMemory::backward_moment(size_t block, const MemoryMoment& moment, int64_t beside) {
  int64_t bytes = beside + moment_bytes(moment), gradient = bytes_of(leaf_);
  if (recomputed(block)) {  // all gradients are delivered together, at the end of the block
    play_bytes(block, bytes + moment.arrived * gradient + input_scratch(moment, tokens_));
    play_bytes(block, bytes + (moment.arrived + moment.arriving) * gradient + weight_scratch(moment, tokens_));
    return;
  }
  hold(block, bytes);
  deliver_one_by_one(block, moment.arrived);
  play_bytes(block, bytes + input_scratch(moment, tokens_));
  play_bytes(block, bytes + moment.arriving * compute_ + weight_scratch(moment, tokens_));
  if (moment.arriving == 0) return;
  bytes -= whole(static_cast<double>(tokens_) * moment.released_per_token * static_cast<double>(compute_));
  if (leaf_ != job_.precision.compute) play_bytes(block, bytes + moment.arriving * (compute_ + gradient));
  deliver(block, moment.arrived + moment.arriving, false);
  play_bytes(block, bytes + (takes_gradients() ? 0 : moment.arriving * gradient));
  deliver(block, moment.arrived + moment.arriving, true);
  hold(block, bytes);
}

namespace {

/// The order in which autograd accumulates the `count` gradients of a recomputed block. Autograd's ready queue is a heap, which
/// does not keep the order of equal priorities. The accumulation nodes enter it together, with one priority, after the node that
/// produced the block's input.
std::vector<size_t> order_of_accumulation(size_t count) {
  struct Task {
    size_t index;
    bool accumulates;
  };
  auto later = [](const Task& a, const Task& b) { return !a.accumulates && b.accumulates; };
  std::priority_queue<Task, std::vector<Task>, decltype(later)> queue(later);
  queue.push({count, false});
  for (size_t i = 0; i < count; ++i) queue.push({i, true});
  std::vector<size_t> order;
  for (; queue.top().accumulates; queue.pop()) order.push_back(queue.top().index);
  return order;
}

}  // namespace

void StepMemory::hand_on(size_t block) {
  const auto& parameters = job_.model->blocks[block].parameters;
  int64_t element = takes_gradients() ? 0 : bytes_of(leaf_);
  hold(block, held_[block] + job_.model->blocks[block].parameter_count() * element);
  for (size_t i : order_of_accumulation(parameters.size())) {
    gradient_arrives(first_slot_[block] + i);
    note();
    gradient_taken(first_slot_[block] + i);
    hold(block, held_[block] - parameters[i].numel() * element);
  }
}

void StepMemory::deliver(size_t block, int64_t elements, bool taken) {
  for (size_t i = job_.model->blocks[block].parameters.size(); i-- > 0 && elements > 0;) {
    size_t slot = first_slot_[block] + i;
    elements -= elements_[slot];
    Gradient& state = state_[slot];
    if (state != (taken ? Gradient::arriving : Gradient::none)) continue;
    state = taken ? Gradient::taken : Gradient::arriving;
    taken ? gradient_taken(slot) : gradient_arrives(slot);
  }
}

void StepMemory::deliver_one_by_one(size_t block, int64_t elements) {
  const auto& parameters = job_.model->blocks[block].parameters;
  int64_t through = 0;
  for (size_t i = parameters.size(); i-- > 0 && through < elements;) {
    through += elements_[first_slot_[block] + i];
    deliver(block, through, false);
    deliver(block, through, true);
  }
}

void StepMemory::forward(size_t block) {
  const auto& spec = job_.model->blocks[block];
  block_begins(block, false);
  int64_t output = whole(static_cast<double>(tokens_) * spec.output_elements_per_token * static_cast<double>(compute_));
  int64_t saved = saved_bytes(block);
  if (recomputed(block)) {
    saved = input_bytes(block);
    keep_input(block);
  }
  play_bytes(block, saved + output);
  for (const auto& moment : spec.forward_moments) forward_moment(block, moment, 0);
  hold(block, saved);
  block_ends(block, false);
}

void StepMemory::backward(size_t block) {
  const auto& spec = job_.model->blocks[block];
  block_begins(block, true);
  int64_t output = 0;
  if (recomputed(block)) {
    bring_back_input_before(block);
    output = whole(static_cast<double>(tokens_) * spec.output_elements_per_token * static_cast<double>(compute_));
    for (const auto& moment : spec.forward_moments) forward_moment(block, moment, output);
    hold(block, saved_bytes(block));
  }
  for (const auto& moment : spec.backward_moments) {
    // The cast of each weight is freed after its backward. Counting all casts until the last moment is an upper bound.
    bool end = &moment == &spec.backward_moments.back();
    backward_moment(block, moment, output + (end ? 0 : cast_bytes(block)) + waiting_bytes(block));
  }
  hold(block, waiting_bytes(block));
  if (recomputed(block)) {
    hand_on(block);
  } else {
    deliver_one_by_one(block, spec.parameter_count());
  }
  block_ends(block, true);
}

MemoryParts StepMemory::play() {
  const auto& blocks = job_.model->blocks;
  now_.activations += job_.model->buffer_elements * compute_;
  now_.between_steps = now_.total();
  // Token ids and targets of all micro-batches, 8 bytes each.
  now_.activations += 2 * 8 * tokens_ * job_.most_micro_batches();
  int64_t micro_batches = std::min(job_.most_micro_batches(), played_micro_batches);
  for (int64_t m = 0; m < micro_batches; ++m) {
    state_.assign(elements_.size(), Gradient::none);
    micro_batch_begins(m == 0, m + 1 == micro_batches);
    for (size_t block = 0; block < blocks.size(); ++block) forward(block);
    for (size_t block = blocks.size(); block-- > 0;) backward(block);
    for (size_t block = 0; block < blocks.size(); ++block) hold(block, 0);
  }
  update();
  peak_.between_steps = now_.between_steps;
  if (job_.host_checkpoints)
    for (int64_t bytes : checkpoint_bytes(job_)) peak_.host += job_.accelerator.pinned ? pinned_bytes(bytes) : bytes;
  return peak_;
}

WholeCopyMemory::WholeCopyMemory(const Job& job) : StepMemory(job, job.precision.parameter) {
  now_.parameters = job.model->parameter_count() * bytes_of(leaf_);
  now_.optimizer = now_.parameters * job.optimizer_states;
  now_.held = job.model->parameter_count();
}

void WholeCopyMemory::micro_batch_begins(bool first, bool) { first_ = first; }

void WholeCopyMemory::gradient_arrives(size_t slot) {
  if (first_) now_.gradients += elements_[slot] * bytes_of(leaf_);
}

}  // namespace runner
