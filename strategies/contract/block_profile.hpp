// The memory that one block of a model takes, as it was recorded (executor/block_recorder.hpp). All numbers are bytes of one micro-batch on
// one rank, and torch-free.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "strategies/contract/precision.hpp"

namespace runner {

/// A part of a block's backward: until the gradient of a parameter is passed on, or until the end.
struct BackwardMoment {
  int64_t peak = 0;   ///< the most that the block's tensors take
  int64_t level = 0;  ///< what they take at its end, with the gradient
  /// The parameter whose gradient is passed on, by its place in BlockSpec::parameters; nullopt: the end.
  std::optional<size_t> parameter = {};
  int64_t gradient = 0;  ///< of that gradient, if it is a tensor of its own
  bool operator==(const BackwardMoment&) const = default;
};

/// `peak` and `saved` include the block's input. A backward begins with what is saved and the gradient of the output, and ends with what
/// remains without the gradient of the input.
struct BlockProfile {
  int64_t input = 0, output = 0;
  /// The peak of a forward that keeps nothing for a backward: in training, and in validation.
  int64_t trains_without_graph = 0, validates_without_graph = 0;
  struct Pass {
    int64_t forward_peak = 0, saved = 0;
    std::vector<BackwardMoment> backward = {};  ///< the whole, or the first part if the schedule splits it
    std::vector<BackwardMoment> weight = {};    ///< the second part
    int64_t kept_for_weights = 0;               ///< between the two
    int64_t waiting = 0;                        ///< part of a tied parameter's gradient that waits for the other part
    bool operator==(const Pass&) const = default;
  };
  Pass plain = {};
  Pass recomputed = {};  ///< `forward_peak` is that of the recomputation
  bool operator==(const BlockProfile&) const = default;
};
using BlockProfiles = std::vector<BlockProfile>;  ///< of each block

struct Job;

/// Tells what the blocks of a model allocate. A ModelSpec has one.
class BlockProfiler {
 public:
  virtual ~BlockProfiler() = default;
  /// The profile of each block of job.model. `leaf`: the dtype of parameters in the model's slots. Thread-safe. Throws Error(environment)
  /// if the blocks cannot be recorded here.
  virtual std::shared_ptr<const BlockProfiles> profiles(const Job& job, DType leaf) const = 0;
};

}  // namespace runner
