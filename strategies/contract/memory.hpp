// Predicts the memory of one rank: simulates an optimizer step with byte counts instead of tensors.
//
// A StepMemory makes the same sequence as Strategy::step (forward through the blocks, backward from the last one, update) and
// records the peak. The base class counts activations and the tensors that autograd makes. A strategy's entry overrides hooks to
// count the bytes of the strategy; the hooks correspond to those of its Strategy class. The simulated step is the second one, in
// which the optimizer state exists.
#pragma once
#include "strategies/contract/entry.hpp"

namespace runner {

/// Bytes of the input of each recomputed block, for one micro-batch.
std::vector<int64_t> checkpoint_bytes(const Job& job);
/// Bytes of pinned host memory that an allocation of `bytes` takes: the allocator rounds up to a power of two.
int64_t pinned_bytes(int64_t bytes);

class StepMemory {
 public:
  /// `leaf`: dtype of the parameters in the model's slots, and therefore of the gradients that autograd delivers.
  StepMemory(const Job& job, DType leaf);
  virtual ~StepMemory() = default;
  /// Simulates the step. Returns the parts at the peak.
  MemoryParts play();

 protected:
  // ---- hooks; they change `now_`, and call note() if memory may peak inside the hook
  /// `first`, `last`: of the step; gradients are reduced after the last one, or after each.
  virtual void micro_batch_begins(bool first, bool last) { (void)first, (void)last; }
  virtual void block_begins(size_t block, bool backward) { (void)block, (void)backward; }
  /// Called once in each micro-batch when autograd delivers the gradient of the parameter in `slot`, and again when the strategy
  /// has stored it. Autograd frees its tensor afterwards, except if takes_gradients().
  virtual void gradient_arrives(size_t slot) { (void)slot; }
  virtual void gradient_taken(size_t slot) { (void)slot; }
  virtual void block_ends(size_t block, bool backward) { (void)block, (void)backward; }
  /// The optimizer's update, after all gradients are reduced and all activations are freed.
  virtual void update() { note(); }
  /// Whether the strategy keeps the tensors that autograd delivers (and counts them), instead of copying them.
  virtual bool takes_gradients() const { return false; }

  /// Records `now_` if it is the peak so far.
  void note();

  const Job& job_;
  DType leaf_;
  MemoryParts now_;
  std::vector<int64_t> elements_;  ///< of each parameter

 private:
  void forward(size_t block);
  void backward(size_t block);
  /// `beside`: bytes that exist in addition to the counted ones.
  void forward_moment(size_t block, const MemoryMoment& moment, int64_t beside);
  void backward_moment(size_t block, const MemoryMoment& moment, int64_t beside);
  /// Sets the bytes of the block's activations.
  void hold(size_t block, int64_t bytes);
  /// The same, followed by note().
  void play_bytes(size_t block, int64_t bytes);
  /// Delivers all gradients of a recomputed block together; the strategy takes them one by one.
  void hand_on(size_t block);
  /// Calls gradient_arrives() (or, if `taken`, gradient_taken()) for the block's last parameters, which have `elements` elements
  /// together, from the last one backward. Skips parameters for which it was called already.
  void deliver(size_t block, int64_t elements, bool taken);
  /// The same, but each gradient is delivered and taken before the next one is delivered.
  void deliver_one_by_one(size_t block, int64_t elements);
  int64_t moment_bytes(const MemoryMoment& moment) const;
  /// Scratch bytes of the moment's two matrix products over `tokens` tokens: for the gradient of the input and of the weight.
  int64_t input_scratch(const MemoryMoment& moment, int64_t tokens) const;
  int64_t weight_scratch(const MemoryMoment& moment, int64_t tokens) const;
  /// Bytes of the block's weights, cast to the compute dtype; autograd keeps these casts with the activations.
  int64_t cast_bytes(size_t block) const;
  int64_t saved_bytes(size_t block) const;
  bool recomputed(size_t block) const;
  int64_t input_bytes(size_t block) const;
  /// Which inputs of recomputed blocks are on the device, if the job keeps them in host memory (host_checkpoints.hpp).
  void keep_input(size_t block);
  void bring_back_input_before(size_t block);
  /// Bytes of the head's part of a tied weight's gradient. Autograd keeps it until the embedding's part exists, and delivers
  /// their sum.
  int64_t waiting_bytes(size_t block) const;

  int64_t tokens_, compute_, wide_;  ///< tokens of a micro-batch; bytes per element: compute dtype, statistics
  MemoryParts peak_;
  enum class Gradient { none, arriving, taken };
  std::vector<Gradient> state_;     ///< of each parameter, in this micro-batch
  std::vector<size_t> first_slot_;  ///< of each block
  std::vector<int64_t> held_;       ///< current bytes of each block's activations
  std::optional<size_t> last_kept_;  ///< the last recomputed block whose input was sent to host memory
};

/// For a replicated model whose gradients are the tensors that autograd delivers: `single`, and the base of `ddp`.
class WholeCopyMemory : public StepMemory {
 public:
  explicit WholeCopyMemory(const Job& job);

 protected:
  void micro_batch_begins(bool first, bool last) override;
  void gradient_arrives(size_t slot) override;
  bool takes_gradients() const override { return first_; }

 private:
  bool first_ = true;  ///< later micro-batches add to existing gradients
};

}  // namespace runner
