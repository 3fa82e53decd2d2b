// The part of a model that one rank of a pipeline has, as a model of its own: the blocks of its virtual stages, one after another.
// Torch-free.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "strategies/pipeline/stages.hpp"

namespace runner {

struct ModelSpec;

/// Where the blocks and parameters of such a part are in the whole model.
struct StagePart {
  int ranks = 1, rank = 0, virtual_stages = 1;  ///< of the pipeline
  StageBlocks blocks;                           ///< of each of all virtual stages
  std::vector<int> stage_of;                    ///< of each block: its virtual stage, of all ranks x virtual_stages
  std::vector<size_t> block_of;                 ///< of each block: its index in the whole model
  std::vector<size_t> slot_of;                  ///< of each parameter
  std::vector<double> input_elements;  ///< of each block: elements per token of its input, in the compute dtype
  /// For each block: whether blocks before it in the whole model have trained parameters.
  std::vector<bool> trained_before;
  bool has_first = false, has_last = false;  ///< the first and the last block of the model
  /// The parameter of the first rank that a block of the last rank also uses: each has a copy of it, and their gradients are added.
  std::optional<std::string> tied = {};

  bool begins_stage(size_t block) const { return block == 0 || stage_of[block] != stage_of[block - 1]; }
  bool ends_stage(size_t block) const { return block + 1 == stage_of.size() || stage_of[block] != stage_of[block + 1]; }
  bool operator==(const StagePart&) const = default;
};

/// The spec without blocks and without `stage`, for parts of it: copying all blocks to select some of them would cost more.
ModelSpec without_blocks(const ModelSpec& whole);

/// `blocks`: of each of ranks x virtual stages; rank i has the stages i, ranks + i, ... A parameter of the first rank that a block on
/// another rank uses (a tied head) is also a parameter of that block, ParameterSpec::copied. Throws Error(usage) if parameters are tied in
/// another way.
ModelSpec stage_spec(const ModelSpec& whole, const StageBlocks& blocks, int ranks, int rank);

}  // namespace runner
