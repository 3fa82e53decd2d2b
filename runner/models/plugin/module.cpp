#include "runner/models/plugin/module.hpp"

#include <dlfcn.h>

#include <set>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/models/dropout.hpp"
#include "runner/models/layers.hpp"
#include "runner/plugins/given_options.hpp"

namespace runner {

namespace {

using nlohmann::json;

const plugin::Library& plugin_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw usage_error("model.plugin: cannot load {}: {}", path, dlerror());
  auto* const entry = reinterpret_cast<const plugin::Library* (*)()>(dlsym(library, "runner_plugin"));
  if (!entry)
    throw usage_error(
        "model.plugin: {} exports no plug-in: the function runner_plugin() is missing; RUNNER_PLUGIN(make) defines it",
        path);
  const auto* const found = entry();
  if (found->version != plugin::abi_version)
    throw usage_error(
        "model.plugin: {} was built for version {} of the plug-in interface, and this program has version {}; build it "
        "again with the header of this program",
        path, found->version, plugin::abi_version);
  if (std::string(found->torch_version) != TORCH_VERSION)
    throw usage_error("model.plugin: {} was built with LibTorch {}, and this program uses {}; build it again", path,
                      found->torch_version, TORCH_VERSION);
  return *found;
}

void check_model(const plugin::Model& model, const std::string& path) {
  const auto require = [&](bool condition, const std::string& problem) {
    if (!condition) throw usage_error("model.plugin: the model of {} is contradictory: {}", path, problem);
  };
  require(model.blocks.size() >= 2,
          fmt::format("it has {} of the at least two blocks that it needs", model.blocks.size()));
  std::set<std::string> names, parameters;
  for (const auto& block : model.blocks) {
    require(!block.name.empty(), "a block has no name");
    require(names.insert(block.name).second, fmt::format("two blocks have the name `{}`", block.name));
    require(static_cast<bool>(block.forward), fmt::format("block `{}` has no forward", block.name));
    for (const auto& name : block.shared)
      require(parameters.contains(name),
              fmt::format("block `{}` shares `{}`, which no earlier block has", block.name, name));
    for (const auto& parameter : block.parameters) {
      require(parameters.insert(parameter.name).second,
              fmt::format("two parameters have the name `{}`", parameter.name));
      require(std::ranges::all_of(parameter.shape, [](int64_t size) { return size > 0; }),
              fmt::format("the parameter `{}` has no elements", parameter.name));
    }
  }
  require(!parameters.empty(), "it has no parameters");
}

}  // namespace

plugin::Model make_plugin_model(const std::string& path, const json& options, const plugin::Sizes& sizes) {
  const auto& library = plugin_library(path);
  const auto given = plugin_options(options, "model.options");
  const auto model = [&] {
    try {
      return library.make(given, sizes);
    } catch (const std::exception& error) {
      throw usage_error("model.plugin: the plug-in {} failed: {}", path, first_line(error.what()));
    }
  }();
  check_asked(given, "model.options");
  check_model(model, path);
  return model;
}

}  // namespace runner

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
