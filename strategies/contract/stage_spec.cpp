#include "strategies/contract/stage_spec.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

namespace {

/// The block of the whole model that lists a parameter.
size_t owner_of(const ModelSpec& whole, const std::string& name) {
  const auto lists = [&](const BlockSpec& block) {
    return std::ranges::find(block.parameters, name, &ParameterSpec::name) != block.parameters.end();
  };
  return static_cast<size_t>(std::ranges::find_if(whole.blocks, lists) - whole.blocks.begin());
}

/// Lists the parameter that the block shares with one on another rank.
void list_copy(BlockSpec& block, const ParameterSpec& shared) {
  block.parameters.push_back(shared);
  block.parameters.back().copied = true;
  block.shared.clear();
}

}  // namespace

ModelSpec without_blocks(const ModelSpec& whole) {
  return {.family = whole.family,
          .blocks = {},
          .batch = whole.batch,
          .vocab_size = whole.vocab_size,
          .dim = whole.dim,
          .seq_len = whole.seq_len,
          .loss_chunk_tokens = whole.loss_chunk_tokens,
          .division = whole.division,
          .context = whole.context,
          .stage = {},
          .adapter = whole.adapter,
          .quantization = whole.quantization,
          .task = whole.task,
          .buffers = whole.buffers,
          .buffer_elements = whole.buffer_elements,
          .profiler = whole.profiler};
}

ModelSpec stage_spec(const ModelSpec& whole, const StageBlocks& blocks, int ranks, int rank) {
  const auto stages = static_cast<int>(blocks.size());
  RUNNER_CHECK(stages % ranks == 0);
  ModelSpec spec = without_blocks(whole);
  StagePart part;
  part.ranks = ranks;
  part.rank = rank;
  part.blocks = blocks;
  part.virtual_stages = stages / ranks;
  std::vector<size_t> first_slot;
  std::vector<int> stage_of;  // of each block of the whole model
  size_t slots = 0;
  for (const auto& block : whole.blocks) {
    first_slot.push_back(slots);
    slots += block.parameters.size();
  }
  for (int stage = 0; stage < stages; ++stage)
    stage_of.insert(stage_of.end(), static_cast<size_t>(blocks[static_cast<size_t>(stage)]), stage);
  RUNNER_CHECK(stage_of.size() == whole.blocks.size(), "stages of {} blocks for a model of {}", stage_of.size(),
               whole.blocks.size());
  const size_t first_trained = whole.first_trained_block();
  for (size_t b = 0; b < whole.blocks.size(); ++b) {
    const bool here = stage_of[b] % ranks == rank;
    for (const auto& name : whole.blocks[b].shared) {
      const size_t owner = owner_of(whole, name);
      const int from = stage_of[owner] % ranks, to = stage_of[b] % ranks;
      if (from == to) continue;
      if (from != 0 || to != ranks - 1 || whole.blocks[b].shared.size() > 1)
        throw usage_error(
            "`{}` is used by \"{}\" on rank {} and by \"{}\" on rank {} of the pipeline: only parameters of the first "
            "rank can be shared with the last one",
            name, whole.blocks[owner].name, from, whole.blocks[b].name, to);
      part.tied = name;
    }
    if (!here) continue;
    auto& block = spec.blocks.emplace_back(whole.blocks[b]);
    part.stage_of.push_back(stage_of[b]);
    part.block_of.push_back(b);
    part.input_elements.push_back(b > 0 ? whole.blocks[b - 1].output_elements_per_token : 0);
    part.trained_before.push_back(first_trained < b);
    for (size_t i = 0; i < block.parameters.size(); ++i) part.slot_of.push_back(first_slot[b] + i);
    if (part.tied && !block.shared.empty() && rank == ranks - 1 && ranks > 1) {
      const size_t slot = whole.slot(*part.tied);
      list_copy(block, *whole.parameters()[slot]);
      part.slot_of.push_back(slot);
    }
    // Halves of a layer on different ranks are layers of their own.
    if (b > 0 && stage_of[b] != stage_of[b - 1] && whole.continues_layer(b)) block.layer.clear();
  }
  part.has_first = stage_of.front() % ranks == rank;
  part.has_last = stage_of.back() % ranks == rank;
  spec.stage = std::move(part);
  return spec;
}

}  // namespace runner
