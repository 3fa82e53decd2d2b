// Bytes of tensors while one block of a model runs: in its forward, and in its backward. They come from the block's profile.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "strategies/contract/block_profile.hpp"
#include "strategies/contract/entry.hpp"
#include "strategies/program/memory_peak.hpp"

namespace runner {

/// Bytes of the tensor that a block of a job takes, and of the one that it passes on, for one micro-batch.
int64_t input_bytes(const Job& job, size_t block);
int64_t output_bytes(const Job& job, size_t block);
/// Bytes of each input that is kept for a recomputation, for one micro-batch.
std::vector<int64_t> checkpoint_bytes(const Job& job);
/// Bytes of pinned host memory that an allocation of `bytes` takes: the allocator rounds up to a power of two.
int64_t pinned_bytes(int64_t bytes);

/// One thing that happens in a block's backward.
struct BackwardEvent {
  enum class Kind {
    peak,      ///< the block's activations have `bytes` bytes, and memory may peak
    level,     ///< they have `bytes` bytes
    computed,  ///< the gradient of the parameter in `slot` was computed
    stored,    ///< the strategy has added the gradient of `slot` to its buffer
    took_waiting,  ///< what waited for the gradient of a tied parameter (BlockMemory::waiting()) is now counted with this block
  };
  Kind kind = Kind::level;
  int64_t bytes = 0;
  size_t slot = 0;
};

class BlockMemory {
 public:
  /// `leaf`: dtype of the parameters in the model's slots, and therefore of the gradients that autograd computes. The job must
  /// outlive this object.
  BlockMemory(const Job& job, DType leaf);

  int64_t input(size_t block) const { return profile(block).input; }
  int64_t output(size_t block) const { return profile(block).output; }
  /// Bytes that the block keeps for its backward, with its input. A recomputed block keeps them from its recomputation on.
  int64_t saved(size_t block) const { return pass(block).saved; }
  /// Bytes as of saved() for a block that is not recomputed, without copies of parameters and without gradients of parameters.
  int64_t saved_activations(size_t block) const;
  /// Bytes of the part of a tied weight's gradient that the head computes. It exists until the embedding's part exists.
  int64_t waiting(size_t block) const { return pass(block).waiting; }
  /// The most bytes in the forward of a block that keeps nothing for a backward, with its input and its output. `trains`: with dropout.
  int64_t forward_without_graph(size_t block, bool trains) const {
    return trains ? profile(block).trains_without_graph : profile(block).validates_without_graph;
  }
  /// The most bytes in a forward that keeps what backward needs, or in a recomputation.
  int64_t forward_peak(size_t block) const { return pass(block).forward_peak; }
  /// `takes`: the strategy keeps the tensors of gradients (and counts them), instead of copying them. If the schedule splits backwards, the
  /// first part.
  std::vector<BackwardEvent> backward(size_t block, bool takes) const;
  /// The second part.
  std::vector<BackwardEvent> backward_weight(size_t block, bool takes) const;
  /// Bytes that the first part keeps for the second.
  int64_t kept_for_weights(size_t block) const { return pass(block).kept_for_weights; }

  /// Bytes of what the block computes with instead of its converted parameters (conversion.hpp).
  int64_t converted(size_t block) const;
  /// The most bytes in addition while one of them is computed.
  int64_t converting(size_t block) const;

  int64_t elements(size_t slot) const { return elements_[slot]; }

 private:
  const BlockProfile& profile(size_t block) const { return (*profiles_)[block]; }
  const BlockProfile::Pass& pass(size_t block) const {
    return job_.recomputes(block) ? profile(block).recomputed : profile(block).plain;
  }
  std::vector<BackwardEvent> events(size_t block, std::vector<BackwardMoment> BlockProfile::Pass::*part,
                                    bool takes) const;
  /// The converted parameters that the block uses.
  std::vector<const ParameterSpec*> converted_parameters(size_t block) const;

  const Job& job_;
  DType leaf_;
  std::shared_ptr<const BlockProfiles> profiles_;
  std::vector<int64_t> elements_;   ///< of each parameter
  std::vector<size_t> first_slot_;  ///< of each block
};

/// Bytes of what blocks compute with instead of their converted parameters (conversion.hpp), from the forward of a block to its backward.
class ConvertedMemory {
 public:
  /// `blocks` and `peak` must outlive this object.
  ConvertedMemory(const BlockMemory& blocks, MemoryPeak& peak) : blocks_(blocks), peak_(peak) {}

  /// Before the block runs.
  void make(uint32_t micro_batch, size_t block) {
    const int64_t bytes = blocks_.converted(block), working = blocks_.converting(block);
    if (bytes + working == 0) return;
    held_[{micro_batch, block}] = bytes;
    peak_.now.activations += bytes + working;
    peak_.note();
    peak_.now.activations -= working;
  }
  void drop(uint32_t micro_batch, size_t block) {
    if (const auto found = held_.extract({micro_batch, block})) peak_.now.activations -= found.mapped();
  }

 private:
  const BlockMemory& blocks_;
  MemoryPeak& peak_;
  std::map<std::pair<uint32_t, size_t>, int64_t> held_;  ///< by micro-batch and block
};

}  // namespace runner
