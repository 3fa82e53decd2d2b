#include "runner/models/plugin/module.hpp"

#include "runner/base/error.hpp"
#include "runner/models/dropout.hpp"
#include "runner/models/layers.hpp"

namespace runner::plugin {

namespace {

using torch::Tensor;

/// A block of the plug-in among those of the runner. Errors of the plug-in name the block.
class PluginBlock final : public runner::Block {
 public:
  PluginBlock(const runner::Model& model, plugin::Block block, uint64_t index, bool last)
      : spec_(model.spec), block_(std::move(block)), index_(index), last_(last) {
    for (const auto& parameter : block_.parameters)
      parameters_.emplace(parameter.name, runner::Parameter(model, parameter.name));
    for (const auto& name : block_.shared) parameters_.emplace(name, runner::Parameter(model, name));
  }

  Tensor forward(const Tensor& x, const ForwardContext& context) override;

 private:
  class OwnCall;

  const ModelSpec& spec_;
  plugin::Block block_;
  std::map<std::string, runner::Parameter> parameters_;
  uint64_t index_;
  bool last_;
};

class PluginBlock::OwnCall final : public Call {
 public:
  OwnCall(const PluginBlock& block, const ForwardContext& context, torch::ScalarType dtype)
      : block_(block), context_(context), dtype_(dtype) {}

  Tensor parameter(const std::string& name) const override {
    const auto found = block_.parameters_.find(name);
    if (found == block_.parameters_.end())
      throw std::invalid_argument("the block has no parameter `" + name + "`, and shares none with this name");
    return found->second.as(dtype_);
  }
  Tensor field(const std::string& name) const override {
    const auto& batch = block_.spec_.batch;
    for (size_t i = 0; i < batch.size(); ++i)
      if (batch[i].name == name) return context_.batch->fields[i];
    throw std::invalid_argument("the batch has no field `" + name + "`");
  }
  Tensor dropout(const Tensor& x, double probability) const override {
    // Each call of a block has masks of its own.
    const Dropout dropout(probability, block_.index_ * 1024 + calls_++);
    return dropout.active(context_) ? dropout(x.clone(), context_, DropoutSite::embedding) : x;
  }
  bool training() const override { return context_.training; }
  std::optional<int64_t> logits_of() const override { return context_.logits_of; }

 private:
  const PluginBlock& block_;
  const ForwardContext& context_;
  torch::ScalarType dtype_;
  mutable uint64_t calls_ = 0;
};

Tensor PluginBlock::forward(const Tensor& x, const ForwardContext& context) {
  const Tensor reference = x.defined()           ? x
                           : parameters_.empty() ? torch::empty({0})
                                                 : parameters_.begin()->second.get();
  ComputeScope compute(reference);
  const OwnCall call(*this, context, compute.dtype);
  if (context.cache)
    throw run_error("the blocks of a plug-in have no cache of keys and values, so they cannot continue a text");
  if (last_ && context.token_loss)
    throw run_error("a hook replaces the loss, but the last block of a plug-in computes a loss of its own");
  Tensor output;
  try {
    output = block_.forward(x.defined() ? x.to(compute.dtype) : x, call);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    throw run_error("block `{}` of the plug-in failed: {}", block_.name, error.what());
  }
  const auto expected =
      last_ ? (context.logits_of ? "logits [B, vocab_size]" : "a scalar, the summed loss") : "a tensor [B, T, C]";
  const int64_t dims = last_ ? (context.logits_of ? 2 : 0) : 3;
  if (!output.defined() || output.dim() != dims)
    throw run_error("block `{}` of the plug-in must return {}, not a tensor with {} dimensions", block_.name, expected,
                    output.defined() ? output.dim() : 0);
  if (!last_) return output.to(compute.dtype);
  return output.scalar_type() == torch::kFloat64 ? output : output.to(torch::kFloat32);
}

}  // namespace

void add_blocks(runner::Model& model, std::vector<Block> blocks) {
  for (size_t b = 0; b < blocks.size(); ++b)
    model.blocks.push_back(std::make_unique<PluginBlock>(model, std::move(blocks[b]), b, b + 1 == blocks.size()));
}

}  // namespace runner::plugin
