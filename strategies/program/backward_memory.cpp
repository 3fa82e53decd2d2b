// The events of a block's backward (BlockMemory::backward()), whole or in two parts.
#include <algorithm>

#include "strategies/program/block_memory.hpp"
#include "strategies/program/split_backward.hpp"

namespace runner {

/// Lists the events of a block's backward. Gradients are computed from the block's last parameter to its first.
class BlockMemory::Backward {
 public:
  /// `splits`: only the first part of a split backward.
  Backward(const BlockMemory& memory, size_t block, bool takes, bool splits)
      : memory_(memory),
        block_(block),
        spec_(memory.job_.model->blocks[block]),
        first_slot_(memory.first_slot_[block]),
        takes_(takes),
        splits_(splits),
        computed_(spec_.parameters.size()),
        stored_(spec_.parameters.size()) {
    if (splits) tensors_ = tensors_kept_for_weights(*memory.job_.model, block);
  }

  std::vector<BackwardEvent> list(int64_t casts, int64_t waiting) {
    const bool kept = memory_.job_.recomputes(block_);
    for (size_t i = 0; i < spec_.backward_moments.size(); ++i) {
      const auto moment = memory_.own_moment(block_, spec_.backward_moments[i]);
      // The cast of a weight is freed after its backward.
      const bool end = i + 1 == spec_.backward_moments.size();
      const int64_t left = end || casts == 0 ? 0 : casts - memory_.cast_bytes(block_, moment.arrived);
      const int64_t beside = left + waiting + kept_for_weights_at(i) + (i == 0 ? memory_.saved_output(block_) : 0);
      kept ? add_moment_keeping(moment, beside) : add_moment(moment, beside);
    }
    const int64_t remains = waiting + (splits_ ? memory_.kept_for_weights(block_) : 0);
    add(Kind::level, remains);
    kept ? hand_on(remains + memory_.input(block_)) : one_by_one(spec_.parameter_count());
    add(Kind::level, remains);
    if (spec_.kind == BlockKind::embedding) add(Kind::took_waiting, 0);
    return std::move(events_);
  }

 private:
  using Kind = BackwardEvent::Kind;
  void add(Kind kind, int64_t bytes) { events_.push_back({.kind = kind, .bytes = bytes}); }

  void add_moment(const MemoryMoment& moment, int64_t beside) {
    const int64_t gradient = bytes_of(memory_.leaf_);
    // An embedding computes in the dtype of its table. Only its output is cast.
    const int64_t compute = spec_.kind == BlockKind::embedding ? gradient : memory_.compute_;
    const int64_t arriving = trained(moment.arrived, moment.arriving);
    int64_t bytes = beside + memory_.moment_bytes(moment, compute);
    add(Kind::level, bytes);
    one_by_one(moment.arrived);
    add(Kind::peak, bytes + memory_.convolution_bytes(moment));
    if (arrives_as_rows(moment)) return add_rows(moment, bytes);
    if (arriving > 0)
      add(Kind::peak, bytes + arriving * compute + memory_.convolution_weight_bytes(moment) + sum_bytes(moment));
    if (moment.arriving == 0) return;
    if (!splits_) bytes -= memory_.released_bytes(moment);
    if (compute != gradient) add(Kind::peak, bytes + arriving * (compute + gradient));
    deliver(Kind::computed, computed_, moment.arrived + moment.arriving);
    add(Kind::peak, bytes + (takes_ ? 0 : arriving * gradient));
    deliver(Kind::stored, stored_, moment.arrived + moment.arriving);
    add(Kind::level, bytes);
  }

  /// Rows of a tied parameter are a tensor first, to which the gradient of the head is added.
  bool arrives_as_rows(const MemoryMoment& moment) const {
    if (!moment.arrives_as_rows || !memory_.job_.accelerator.host_kernels) return false;
    if (memory_.converted(block_) > 0) return false;  // the gradient passes through the graph of the conversion
    for (size_t b = 0; b < memory_.job_.model->blocks.size(); ++b)
      if (memory_.waiting(b) > 0) return false;
    return true;
  }

  /// Rows are added to the strategy's tensor, without one of their own.
  void add_rows(const MemoryMoment& moment, int64_t bytes) {
    add(Kind::level, bytes);
    one_by_one(moment.arrived + moment.arriving);
    add(Kind::level, bytes);
  }

  /// The same for a recomputed block, whose gradients are kept until the end of its backward.
  void add_moment_keeping(const MemoryMoment& moment, int64_t beside) {
    const int64_t gradient = bytes_of(memory_.leaf_), compute = memory_.compute_;
    const int64_t arriving = trained(moment.arrived, moment.arriving);
    const int64_t bytes = beside + memory_.moment_bytes(moment) + trained(0, moment.arrived) * gradient;
    add(Kind::peak, bytes + memory_.convolution_bytes(moment));
    if (arriving == 0) return;
    add(Kind::peak, bytes + arriving * compute + memory_.convolution_weight_bytes(moment) + sum_bytes(moment));
    if (memory_.leaf_ != memory_.job_.precision.compute)
      add(Kind::peak, bytes - memory_.released_bytes(moment) + arriving * (compute + gradient));
  }

  /// Whether this backward computes the gradient of the block's i-th parameter.
  bool arrives(size_t i) const {
    const auto& parameter = spec_.parameters[i];
    return parameter.trainable && !(splits_ && is_later(spec_, parameter));
  }

  /// Bytes of the sum over the ranks of the input's gradient. The first product of a block with the entered stream leaves the gradient of
  /// its weight until that sum has started (TensorAxis::during_sum()). Branches of a parallel layer have norms between.
  int64_t sum_bytes(const MemoryMoment& moment) const {
    const auto& model = *memory_.job_.model;
    const bool products = moment.out_features > 0 && spec_.layer_name() != spec_.name;
    if (splits_ || !model.division.divides() || !products) return 0;
    const auto first = std::ranges::find_if(
        spec_.parameters, [](const auto& parameter) { return parameter.split && parameter.shape.size() == 2; });
    int64_t end = 0;  // elements of the first matrix and of the parameters after it
    for (auto parameter = first; parameter != spec_.parameters.end(); ++parameter) end += parameter->numel();
    const bool is_first = moment.arrived < end && end <= moment.arrived + moment.arriving;
    return is_first ? memory_.bytes_of_tokens(model.division.of_rows(static_cast<double>(model.dim))) : 0;
  }

  /// Bytes that are kept for the second part at the i-th moment, and that do not belong to the moment itself.
  int64_t kept_for_weights_at(size_t i) const {
    double elements = 0;
    for (const auto& tensor : tensors_) {
      int64_t end = 0;  // elements that have arrived when the backwards that use the tensor have ended
      for (size_t p = tensor.parameters.front(); p < spec_.parameters.size(); ++p) end += spec_.parameters[p].numel();
      const bool at_maker = tensor.until == KeptTensor::Until::maker;
      const size_t last_use = at_maker && i > 0 ? i - 1 : i;
      const bool ended = spec_.backward_moments[last_use].arrived >= end;
      if (ended && tensor.until != KeptTensor::Until::block) elements += tensor.elements_per_token;
    }
    return memory_.bytes_of_tokens(elements);
  }

  /// At the end of backward, each kept gradient is added to its buffer and freed. `beside`: bytes of other tensors that exist
  /// meanwhile, among them the gradient of the block's input.
  void hand_on(int64_t beside) {
    int64_t kept = trained(0, spec_.parameter_count()) * bytes_of(memory_.leaf_);
    for (size_t i = spec_.parameters.size(); i-- > 0;) {
      if (!arrives(i)) continue;
      const int64_t own = spec_.parameters[i].numel() * bytes_of(memory_.leaf_);
      if (takes_) kept -= own;  // it becomes the strategy's
      add(Kind::level, beside + kept);
      events_.push_back({.kind = Kind::computed, .slot = first_slot_ + i});
      add(Kind::peak, beside + kept);
      events_.push_back({.kind = Kind::stored, .slot = first_slot_ + i});
      if (!takes_) kept -= own;
    }
  }

  /// For the block's last parameters, which have `elements` elements together; each at most once.
  void deliver(Kind kind, size_t& done, int64_t elements) {
    const size_t first = done_with(elements);
    for (; done > first; --done) happened(kind, done - 1);
  }

  void happened(Kind kind, size_t i) {
    if (arrives(i)) events_.push_back({.kind = kind, .slot = first_slot_ + i});
  }

  /// The same, but each gradient is stored before the next one is computed.
  void one_by_one(int64_t elements) {
    for (const size_t first = done_with(elements); stored_ > first; --stored_) {
      if (computed_ == stored_) happened(Kind::computed, --computed_);
      happened(Kind::stored, stored_ - 1);
    }
  }

  /// Trained elements among `count` elements of the block's last parameters, after `after` elements.
  int64_t trained(int64_t after, int64_t count) const {
    int64_t elements = 0;
    for (size_t i = done_with(after + count), end = done_with(after); i < end; ++i)
      if (arrives(i)) elements += spec_.parameters[i].numel();
    return elements;
  }

  /// Index of the first of the last parameters that have `elements` elements together.
  size_t done_with(int64_t elements) const {
    size_t i = spec_.parameters.size();
    while (i > 0 && elements > 0) elements -= memory_.elements_[first_slot_ + --i];
    return i;
  }

  const BlockMemory& memory_;
  size_t block_;
  const BlockSpec& spec_;
  size_t first_slot_;
  bool takes_, splits_;
  std::vector<KeptTensor> tensors_ = {};  ///< that are kept for the second part
  size_t computed_, stored_;              ///< the block's parameters from these on have their gradient
  std::vector<BackwardEvent> events_;
};

std::vector<BackwardEvent> BlockMemory::backward(size_t block, bool takes) const {
  return Backward(*this, block, takes, /*splits=*/false).list(cast_bytes(block), waiting(block));
}

std::vector<BackwardEvent> BlockMemory::backward_input(size_t block, bool takes) const {
  return Backward(*this, block, takes, /*splits=*/true).list(cast_bytes(block), waiting(block));
}

int64_t BlockMemory::kept_for_weights(size_t block) const {
  double elements = 0;
  for (const auto& tensor : tensors_kept_for_weights(*job_.model, block)) elements += tensor.elements_per_token;
  return bytes_of_tokens(elements);
}

/// One product after another, from the last parameter to the first. Tensors are freed before the gradient is delivered.
std::vector<BackwardEvent> BlockMemory::backward_weight(size_t block, bool takes) const {
  using Kind = BackwardEvent::Kind;
  const auto& spec = job_.model->blocks[block];
  const auto tensors = tensors_kept_for_weights(*job_.model, block);
  const int64_t gradient = bytes_of(leaf_);
  int64_t bytes = kept_for_weights(block);
  std::vector<BackwardEvent> events;
  for (size_t i = spec.parameters.size(); i-- > 0;) {
    const auto& matrix = spec.parameters[i];
    if (!is_later(spec, matrix)) continue;
    const int64_t elements = matrix.numel();
    events.push_back({.kind = Kind::peak, .bytes = bytes + elements * compute_});
    double freed = 0;
    for (const auto& tensor : tensors)
      if (tensor.parameters.front() == i) freed += tensor.elements_per_token;
    bytes -= bytes_of_tokens(freed);
    if (compute_ != gradient) events.push_back({.kind = Kind::peak, .bytes = bytes + elements * (compute_ + gradient)});
    const size_t slot = first_slot_[block] + i;
    events.push_back({.kind = Kind::level, .bytes = bytes});
    events.push_back({.kind = Kind::computed, .slot = slot});
    events.push_back({.kind = Kind::peak, .bytes = bytes + (takes ? 0 : elements * gradient)});
    events.push_back({.kind = Kind::stored, .slot = slot});
    events.push_back({.kind = Kind::level, .bytes = bytes});
  }
  events.push_back({.kind = Kind::level, .bytes = 0});
  return events;
}

}  // namespace runner
