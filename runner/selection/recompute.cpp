#include "runner/selection/recompute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "runner/base/glob.hpp"

namespace runner {

namespace {

/// Whether the pattern matches the name of the block or of its layer.
bool is_named(const BlockSpec& block, const std::string& pattern) {
  return glob_matches(pattern, block.name) || glob_matches(pattern, block.layer_name());
}

}  // namespace

std::vector<bool> recomputed_blocks(const Recipe::ActivationCheckpointing& settings, const ModelSpec& model) {
  std::vector<bool> chosen(model.blocks.size(), false);
  int64_t layers = 0;  // transformer layers up to the block's
  for (size_t i = 0; i < model.blocks.size(); ++i) {
    const auto& block = model.blocks[i];
    if (settings.mode == "named") {
      for (const auto& pattern : settings.blocks) chosen[i] = chosen[i] || is_named(block, pattern);
    } else if (block.kind == BlockKind::transformer) {
      if (!model.continues_layer(i)) ++layers;
      chosen[i] = settings.mode == "all" || (settings.mode == "every" && layers % settings.every == 0);
    }
  }
  return chosen;
}

void set_recompute(Job& job, const Recipe::ActivationCheckpointing& settings) {
  job.recompute = recomputed_blocks(settings, *job.model);
  // Blocks without a backward are not recomputed.
  const size_t first = std::min(job.model->first_trained_block(), job.recompute.size());
  std::fill_n(job.recompute.begin(), first, false);
  job.host_checkpoints = job.accelerator.own_memory && settings.cpu_checkpointing;
}

std::vector<std::string> recompute_notes(const Job& job, const Recipe::ActivationCheckpointing& settings) {
  const bool none = std::ranges::none_of(job.recompute, std::identity());
  if (none && std::ranges::any_of(recomputed_blocks(settings, *job.model), std::identity()))
    return {fmt::format(
        "[activation_checkpointing] has no effect: the blocks that it names have no backward, which ends at "
        "`{}` because of model.frozen",
        job.model->blocks[job.model->first_trained_block()].name)};
  if (none && settings.mode == "every")
    return {
        fmt::format("activation_checkpointing.every = {} is more than the number of transformer layers: no layer is "
                    "recomputed",
                    settings.every)};
  if (!settings.cpu_checkpointing) return {};
  if (none)
    return {
        "`cpu_checkpointing`: nothing to do, because no layer is recomputed; activation_checkpointing.mode = \"all\" "
        "recomputes every layer"};
  if (!job.accelerator.own_memory)
    return {"`cpu_checkpointing`: nothing to do on CPU, where host memory is the device's"};
  return {};
}

std::vector<std::string> unmatched_blocks(const Recipe::ActivationCheckpointing& settings, const ModelSpec& model) {
  std::vector<std::string> unmatched;
  if (settings.mode != "named") return unmatched;
  for (const auto& pattern : settings.blocks) {
    bool found = false;
    for (const auto& block : model.blocks) found = found || is_named(block, pattern);
    if (!found) unmatched.push_back(pattern);
  }
  return unmatched;
}

}  // namespace runner
