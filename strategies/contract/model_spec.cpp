#include "strategies/contract/model_spec.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/error.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

int64_t BlockSpec::parameter_count() const {
  int64_t count = 0;
  for (const auto& parameter : parameters) count += parameter.numel();
  return count;
}

int64_t ModelSpec::parameter_count() const {
  int64_t count = 0;
  for (const auto& block : blocks) count += block.parameter_count();
  return count;
}

bool ModelSpec::continues_layer(size_t block) const {
  return block > 0 && block < blocks.size() && blocks[block].layer_name() == blocks[block - 1].layer_name();
}

int64_t ModelSpec::layers() const {
  int64_t count = 0;
  for (size_t block = 0; block < blocks.size(); ++block)
    count += blocks[block].kind == BlockKind::transformer && !continues_layer(block);
  return count;
}

int64_t ModelSpec::layers_with(const std::vector<bool>& chosen) const {
  int64_t count = 0;
  bool counted = false;  // the layer of the block
  for (size_t block = 0; block < blocks.size(); ++block) {
    counted = counted && continues_layer(block);
    if (counted || blocks[block].kind != BlockKind::transformer || block >= chosen.size() || !chosen[block]) continue;
    counted = true;
    ++count;
  }
  return count;
}

std::string names_of_blocks(const ModelSpec& model) {
  const auto is_part = [](const BlockSpec& block) { return !block.layer.empty(); };
  const auto first = std::ranges::find_if(model.blocks, is_part);
  const auto last = std::ranges::find_if(model.blocks.rbegin(), model.blocks.rend(), is_part);
  std::string text = fmt::format("\"{}\"", model.blocks.front().name);
  if (first != model.blocks.end()) text += fmt::format(", \"{}\" to \"{}\"", first->layer, last->layer);
  text += fmt::format(", \"{}\"", model.blocks.back().name);
  if (first != model.blocks.end() && first->name != first->layer)
    text += fmt::format(", and parts such as \"{}\"", std::next(first)->name);
  return text;
}

size_t ModelSpec::first_trained_block() const {
  const auto trains = [](const BlockSpec& block) {
    return std::ranges::any_of(block.parameters, &ParameterSpec::trainable);
  };
  auto first = static_cast<size_t>(std::ranges::find_if(blocks, trains) - blocks.begin());
  if (stage)
    first = std::min(
        first, static_cast<size_t>(std::ranges::find(stage->trained_before, true) - stage->trained_before.begin()));
  return first;
}

bool ModelSpec::passes_gradient(size_t block) const {
  return stage ? stage->trained_before[block] : block > first_trained_block();
}

double ModelSpec::training_flops_per_token() const {
  double flops = 0;
  for (size_t block = 0; block < blocks.size(); ++block)
    flops += blocks[block].forward_flops_per_token + backward_flops_per_token(block);
  return flops;
}

double ModelSpec::backward_flops_per_token(size_t index) const {
  const BlockSpec& block = blocks[index];
  if (block.kind == BlockKind::embedding || index < first_trained_block()) return 0;
  double frozen = 0;
  const auto count = [&](const ParameterSpec& parameter) {
    if (!parameter.trainable && parameter.shape.size() == 2) frozen += 2 * static_cast<double>(parameter.numel());
  };
  std::ranges::for_each(block.parameters, count);
  for (const auto& name : block.shared) count(*parameters()[slot(name)]);
  return 2 * block.forward_flops_per_token - frozen;
}

std::vector<const ParameterSpec*> ModelSpec::parameters() const {
  std::vector<const ParameterSpec*> all;
  for (const auto& block : blocks)
    for (const auto& parameter : block.parameters) all.push_back(&parameter);
  return all;
}

std::vector<const ParameterSpec*> ModelSpec::stored() const {
  auto all = parameters();
  for (const auto& buffer : buffers) all.push_back(&buffer);
  return all;
}

size_t ModelSpec::buffer(const std::string& name) const {
  const auto found = std::ranges::find(buffers, name, &ParameterSpec::name);
  RUNNER_CHECK(found != buffers.end(), "no buffer `{}` in the model", name);
  return static_cast<size_t>(found - buffers.begin());
}

size_t ModelSpec::stored_index(const std::string& name) const {
  const bool is_buffer = std::ranges::find(buffers, name, &ParameterSpec::name) != buffers.end();
  return is_buffer ? parameters().size() + buffer(name) : slot(name);
}

int64_t ModelSpec::numel(size_t slot) const {
  for (const auto& block : blocks) {
    if (slot < block.parameters.size()) return block.parameters[slot].numel();
    slot -= block.parameters.size();
  }
  RUNNER_CHECK(false, "no parameter in slot {}", slot);
  return 0;
}

bool ModelSpec::converts() const {
  return std::ranges::any_of(parameters(), [](const auto* parameter) { return parameter->converted.has_value(); });
}

size_t ModelSpec::slot(const std::string& parameter_name) const {
  const auto all = parameters();
  const auto found = std::ranges::find(all, parameter_name, &ParameterSpec::name);
  RUNNER_CHECK(found != all.end(), "no parameter `{}` in the model", parameter_name);
  return static_cast<size_t>(found - all.begin());
}

size_t ModelSpec::batch_field(const std::string& name) const {
  const auto found = std::ranges::find(batch, name, &BatchField::name);
  RUNNER_CHECK(found != batch.end(), "no field `{}` in the model's batch", name);
  return static_cast<size_t>(found - batch.begin());
}

int64_t ModelSpec::batch_row_bytes() const {
  if (context.divides()) {  // inputs, targets and positions (MicroBatch)
    const auto& inputs = batch[batch_field(token_field::inputs_name)];
    return 3 * context.own(inputs.row_elements()) * bytes_of(inputs.type);
  }
  int64_t bytes = 0;
  for (const auto& field : batch) bytes += field.row_bytes();
  return bytes;
}

}  // namespace runner
