// The memory of one rank, foretold: an optimizer step played with byte counts instead of tensors.
//
// A StepMemory goes through the step as Strategy::step does (forward through the blocks, backward from the last one,
// update) and notes the most that exists at once. The base class knows activations and what autograd makes; a
// strategy's entry overrides the hooks with the bytes that the strategy itself holds, hook for hook as its Strategy
// does. The second step is played, when the optimizer's state exists.
#pragma once
#include "strategies/contract/entry.hpp"

namespace runner {

class StepMemory {
 public:
  /// `leaf`: dtype of the tensors that blocks find in their slots, and so of the gradients that autograd delivers.
  StepMemory(const Job& job, DType leaf);
  virtual ~StepMemory() = default;
  /// The parts at the moment of the peak, and what stays between steps.
  MemoryParts play();

 protected:
  // ---- hooks; they change `now_`, and call note() where they themselves may be at a peak
  /// `first` of the step, `last` of the step: the one after which gradients are reduced.
  virtual void micro_batch_begins(bool first, bool last) { (void)first, (void)last; }
  virtual void block_begins(size_t block, bool backward) { (void)block, (void)backward; }
  /// Of the block's own parameters, the gradients of `elements` have been delivered so far.
  virtual void gradients_arrive(size_t block, int64_t elements) { (void)block, (void)elements; }
  virtual void block_ends(size_t block, bool backward) { (void)block, (void)backward; }
  /// Whether what autograd delivers becomes the strategy's own (counted by it), instead of being copied and freed.
  virtual bool takes_gradients() const { return false; }

  void note();

  const Job& job_;
  DType leaf_;
  MemoryParts now_;

 private:
  void forward(size_t block);
  void backward(size_t block);
  /// `beside`: bytes that exist beside the moment's own.
  void forward_moment(size_t block, const MemoryMoment& moment, int64_t beside);
  void backward_moment(size_t block, const MemoryMoment& moment, int64_t beside);
  /// Notes a moment at which the block holds `bytes` instead of what it keeps.
  void play_bytes(size_t block, int64_t bytes);
  int64_t moment_bytes(const MemoryMoment& moment) const;
  /// Casts of the block's weights to the compute dtype, which autograd keeps with the activations.
  int64_t cast_bytes(size_t block) const;
  int64_t saved_bytes(size_t block) const;
  bool recomputed(size_t block) const;
  /// Of a tied weight autograd delivers one sum, when the embedding's part is there; until then the head's part waits.
  int64_t waiting_bytes(size_t block) const;

  int64_t tokens_, compute_, wide_;  ///< of a micro-batch; bytes of an element of the compute dtype, of a statistic
  MemoryParts peak_;
  std::vector<int64_t> kept_;  ///< bytes of each block's saved activations now
};

/// A whole copy of the model on the rank, gradients as autograd leaves them: `single`, and what `ddp` builds on.
class WholeCopyMemory : public StepMemory {
 public:
  explicit WholeCopyMemory(const Job& job);

 protected:
  void micro_batch_begins(bool first, bool last) override;
  void gradients_arrive(size_t block, int64_t elements) override;
  void block_ends(size_t block, bool backward) override;
  bool takes_gradients() const override { return first_; }

 private:
  bool first_ = true;    ///< later micro-batches add to the gradients that are there
  int64_t arrived_ = 0;  ///< bytes of the gradients of the blocks whose backward is over
};

}  // namespace runner
