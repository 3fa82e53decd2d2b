// The memory of one rank, foretold: an optimizer step played with byte counts instead of tensors.
//
// A StepMemory goes through the step as Strategy::step does (forward through the blocks, backward from the last one,
// update) and notes the most that exists at once. The base class knows activations and what autograd makes; a
// strategy's entry overrides the hooks with the bytes that the strategy itself holds, hook for hook as its Strategy
// does. The second step is played, when the optimizer's state exists.
#pragma once
#include "strategies/contract/entry.hpp"

namespace runner {

/// Bytes of the inputs of one micro-batch's recomputed blocks, each.
std::vector<int64_t> checkpoint_bytes(const Job& job);
/// Bytes of pinned host memory that `bytes` take: the allocator gives whole powers of two.
int64_t pinned_bytes(int64_t bytes);

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
  /// The gradient of the parameter in `slot` is being delivered, and then: it is where the strategy wants it. Autograd
  /// frees its tensor afterwards, unless the strategy takes that. Once a micro-batch each.
  virtual void gradient_arrives(size_t slot) { (void)slot; }
  virtual void gradient_taken(size_t slot) { (void)slot; }
  virtual void block_ends(size_t block, bool backward) { (void)block, (void)backward; }
  /// Gradients are reduced, activations gone.
  virtual void update() { note(); }
  /// Whether what autograd delivers becomes the strategy's own (counted by it), instead of being copied and freed.
  virtual bool takes_gradients() const { return false; }

  void note();

  const Job& job_;
  DType leaf_;
  MemoryParts now_;
  std::vector<int64_t> elements_;  ///< of each parameter

 private:
  void forward(size_t block);
  void backward(size_t block);
  /// `beside`: bytes that exist beside the moment's own.
  void forward_moment(size_t block, const MemoryMoment& moment, int64_t beside);
  void backward_moment(size_t block, const MemoryMoment& moment, int64_t beside);
  /// The block's activations are `bytes` now.
  void hold(size_t block, int64_t bytes);
  /// ... and that may be the peak.
  void play_bytes(size_t block, int64_t bytes);
  /// A recomputed block's gradients are handed on together, and taken one by one.
  void hand_on(size_t block);
  /// Of the block's own parameters, the gradients of `elements` are being delivered (or are taken) by now, the last
  /// parameter's first.
  void deliver(size_t block, int64_t elements, bool taken);
  /// Each of those gradients is delivered and taken before the next is delivered.
  void deliver_one_by_one(size_t block, int64_t elements);
  int64_t moment_bytes(const MemoryMoment& moment) const;
  /// The moment's products over `tokens` tokens: what each takes beside its operands and its result.
  int64_t input_scratch(const MemoryMoment& moment, int64_t tokens) const;
  int64_t weight_scratch(const MemoryMoment& moment, int64_t tokens) const;
  /// Casts of the block's weights to the compute dtype, which autograd keeps with the activations.
  int64_t cast_bytes(size_t block) const;
  int64_t saved_bytes(size_t block) const;
  bool recomputed(size_t block) const;
  int64_t input_bytes(size_t block) const;
  /// Inputs of recomputed blocks that wait in host memory: which of them are on the device, as in host_checkpoints.hpp.
  void keep_input(size_t block);
  void bring_back_input_before(size_t block);
  /// Of a tied weight autograd delivers one sum, when the embedding's part is there; until then the head's part waits.
  int64_t waiting_bytes(size_t block) const;

  int64_t tokens_, compute_, wide_;  ///< of a micro-batch; bytes of an element of the compute dtype, of a statistic
  MemoryParts peak_;
  enum class Gradient { none, arriving, taken };
  std::vector<Gradient> state_;     ///< of each parameter, in this micro-batch
  std::vector<size_t> first_slot_;  ///< of each block
  std::vector<int64_t> held_;       ///< bytes of each block's activations now
  std::optional<size_t> last_kept_;  ///< the last recomputed block whose input was sent to host memory
};

/// A whole copy of the model on the rank, gradients as autograd leaves them: `single`, and what `ddp` builds on.
class WholeCopyMemory : public StepMemory {
 public:
  explicit WholeCopyMemory(const Job& job);

 protected:
  void micro_batch_begins(bool first, bool last) override;
  void gradient_arrives(size_t slot) override;
  bool takes_gradients() const override { return first_; }

 private:
  bool first_ = true;  ///< later micro-batches add to the gradients that are there
};

}  // namespace runner
