// Which blocks of a model each virtual stage of a pipeline has. Torch-free.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace runner {

/// The cost of a block on the rank that has it.
struct BlockCost {
  std::string name = "";         ///< as BlockSpec::name: "blocks.0.attention"
  double time = 0;               ///< of a micro-batch, forward and backward; any unit
  int64_t state_bytes = 0;       ///< parameters, gradients and optimizer state
  int64_t activation_bytes = 0;  ///< kept from the forward of a micro-batch until its backward

  bool operator==(const BlockCost&) const = default;
};

/// The memory that a virtual stage may use.
struct StageMemory {
  int64_t limit = INT64_MAX;  ///< bytes, for states and activations
  int micro_batches = 1;      ///< whose activations it holds at a time: PipelineSimulation::stage_peak
};

/// Numbers of consecutive blocks, the first stage first.
using StageBlocks = std::vector<int>;

/// The division into `stages.size()` parts, of at least one block each, whose slowest stage takes the least time. Of several such
/// divisions, the one whose stages are most even (least sum of squared times), then the one with more blocks in the first stages: 10 equal
/// blocks on 4 stages are 3, 3, 2, 2. Throws Error(usage) if there are fewer blocks than stages, or if no division fits. The message then
/// has the division whose fullest stage exceeds its memory least.
StageBlocks balance(const std::vector<BlockCost>& blocks, const std::vector<StageMemory>& stages);

/// A division by hand: the number of blocks of each stage, or the name of each stage's first block. A layer's name means its first block:
/// "blocks.6" is "blocks.6.attention".
using GivenStages = std::variant<std::vector<int>, std::vector<std::string>>;
/// Throws Error(usage) if it is not a division of these blocks into that many stages.
StageBlocks stages_by_hand(const GivenStages& given, const std::vector<BlockCost>& blocks, int stages);

}  // namespace runner
