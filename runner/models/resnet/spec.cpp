// Residual networks (He et al. 2016, arXiv:1512.03385) in the form v1.5: of a bottleneck, the 3x3 convolution has the stride.
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/family.hpp"
#include "runner/models/resnet/resnet.hpp"
#include "runner/models/spec_parts.hpp"
#include "strategies/engine/row_batch.hpp"

namespace runner::resnet {

namespace {

/// The 3x3 convolution of a bottleneck has the channels of its stage, divided by this.
constexpr int64_t bottleneck_reduction = 4;

/// Kaiming initialisation by fan-out, as torchvision and transformers use it.
void add_conv(BlockSpec& block, ModelSpec& spec, const Conv& conv) {
  const auto fan_out = static_cast<double>(conv.out * conv.kernel * conv.kernel);
  block.parameters.push_back({.name = conv.name + ".conv.weight",
                              .shape = {conv.out, conv.in, conv.kernel, conv.kernel},
                              .init = {Init::Kind::normal, std::sqrt(2.0 / fan_out)}});
  block.parameters.push_back(vector_parameter(conv.name + ".norm.weight", conv.out, Init::Kind::ones));
  block.parameters.push_back(vector_parameter(conv.name + ".norm.bias", conv.out, Init::Kind::zeros));
  spec.buffers.push_back(vector_parameter(conv.name + ".norm.running_mean", conv.out, Init::Kind::zeros));
  spec.buffers.push_back(vector_parameter(conv.name + ".norm.running_var", conv.out, Init::Kind::ones));
  for (auto& buffer : spec.buffers) buffer.trainable = false;
}

double flops_of(const Conv& conv) {
  const double products = static_cast<double>(conv.in * conv.kernel * conv.kernel);
  return 2 * products * static_cast<double>(conv.values_out());
}

/// Values that a convolution and its BatchNorm save: their inputs.
double saved_by(const Conv& conv) { return static_cast<double>(conv.values_in() + conv.values_out()); }

double values_in(const Conv& conv) { return static_cast<double>(conv.values_in()); }
double values_out(const Conv& conv) { return static_cast<double>(conv.values_out()); }

ConvolutionSpec convolution_of(const Conv& conv) {
  return {.in = conv.in,
          .out = conv.out,
          .kernel = conv.kernel,
          .stride = conv.stride,
          .size_in = conv.size_in,
          .size_out = conv.size_out()};
}

int64_t parameters_of(const Conv& conv) { return convolution_of(conv).weight_elements() + 2 * conv.out; }

/// The backward of a convolution and its norm. `values`: elements that exist, without the gradients of its result and of its input.
void add_backward(BlockSpec& block, const Conv& conv, double values, int64_t& arrived, bool first = false) {
  block.backward_moments.push_back(
      {.compute_elements_per_token = values + values_out(conv) + (first ? 0 : values_in(conv)),
       .arrived = arrived,
       .arriving = parameters_of(conv),
       .convolution = convolution_of(conv)});
  arrived += parameters_of(conv);
}

BlockSpec stem_block(const Recipe::Model& model, ModelSpec& spec) {
  const Conv conv = stem_of(model);
  BlockSpec block{.name = "stem", .layer = "stem"};
  add_conv(block, spec, conv);
  const double after = values_out(conv);
  const auto pooled = static_cast<double>(conv.out * pooled_size(model) * pooled_size(model));
  block.forward_flops_per_token = flops_of(conv);
  // Also the result of ReLU, which pooling saves, and the places of the maxima, int64.
  block.saved.compute_elements_per_token = saved_by(conv) + after;
  block.saved.float32_per_token = 2 * pooled;
  block.output_elements_per_token = pooled;
  block.forward_moments = {{.compute_elements_per_token = saved_by(conv), .convolution = convolution_of(conv)},
                           {.compute_elements_per_token = saved_by(conv) + 2 * after}};
  // The gradients of pooling and of ReLU; then the convolution, whose input has no gradient.
  block.backward_moments = {{.compute_elements_per_token = block.saved.compute_elements_per_token + 2 * after}};
  int64_t arrived = 0;
  add_backward(block, conv, values_in(conv), arrived, /*first=*/true);
  block.backward_moments.push_back({.compute_elements_per_token = values_in(conv), .arrived = arrived});
  return block;
}

/// What a layer has saved when its convolutions run: its input, the inputs and results of the branch's convolutions before, and the result
/// of the shortcut. The shortcut and the branch share their input, and the result of ReLU is the input of the next convolution.
BlockSpec layer_block(const ResidualLayer& layer, ModelSpec& spec) {
  BlockSpec block{.name = layer.name, .layer = layer.name};
  const double input = values_in(layer.branch.front()), out = values_out(layer.branch.back());
  double saved = input;
  block.forward_moments.clear();
  for (const auto& conv : layer.shortcut) {
    add_conv(block, spec, conv);
    block.forward_flops_per_token += flops_of(conv);
    saved += out;
    block.forward_moments.push_back({.compute_elements_per_token = saved, .convolution = convolution_of(conv)});
  }
  const double residual = layer.shortcut.empty() ? 0 : out;  // the result of the shortcut's norm
  std::vector<double> saved_before;
  for (const auto& conv : layer.branch) {
    add_conv(block, spec, conv);
    block.forward_flops_per_token += flops_of(conv);
    if (&conv != &layer.branch.front()) saved += values_in(conv);
    saved_before.push_back(saved);
    saved += values_out(conv);
    block.forward_moments.push_back(
        {.compute_elements_per_token = saved + residual, .convolution = convolution_of(conv)});
  }
  block.saved.compute_elements_per_token = saved;
  block.output_elements_per_token = out;
  block.saves_output = true;  // of ReLU
  // The result of the last norm, that of the shortcut's, their sum, and the result of ReLU.
  block.forward_moments.push_back({.compute_elements_per_token = saved + residual + 3 * out});
  // The gradient of the sum exists until that of the input does.
  block.backward_moments = {{.compute_elements_per_token = saved + 2 * out}};
  int64_t arrived = 0;
  for (size_t i = layer.branch.size(); i-- > 0;) add_backward(block, layer.branch[i], saved_before[i] + out, arrived);
  for (const auto& conv : layer.shortcut) add_backward(block, conv, 2 * input, arrived);
  block.backward_moments.push_back({.compute_elements_per_token = 2 * input, .arrived = arrived});
  return block;
}

ModelSpec make_spec(const Recipe::Model& model, int64_t outputs, int64_t, RowKind, const TensorDivision&,
                    const ContextDivision&) {
  if (model.hidden_sizes.size() != model.depths.size())
    throw usage_error("model.depths has {} stages, and model.hidden_sizes has {}", model.depths.size(),
                      model.hidden_sizes.size());
  if (model.hidden_sizes.empty()) throw usage_error("model.hidden_sizes: resnet needs at least one stage");
  for (const int64_t size : model.hidden_sizes)
    if (model.layer_type == "bottleneck" && size < bottleneck_reduction)
      throw usage_error("model.hidden_sizes: {} channels are too few for a bottleneck, which needs at least {}", size,
                        bottleneck_reduction);
  ModelSpec spec;
  spec.batch = {pixels_field(model.image_size)};
  BlockSpec input{.name = "input", .kind = BlockKind::embedding};
  input.output_elements_per_token = static_cast<double>(3 * model.image_size * model.image_size);
  input.passes_field = row_field::input;
  spec.blocks.push_back(std::move(input));
  spec.blocks.push_back(stem_block(model, spec));
  const auto layers = layers_of(model);
  for (const auto& layer : layers) spec.blocks.push_back(layer_block(layer, spec));
  const auto& last = layers.back().branch.back();
  BlockSpec head = task_head_block(last.out, outputs);
  head.saved.compute_elements_per_token += static_cast<double>(last.values_out());
  for (auto& moment : head.backward_moments)
    moment.compute_elements_per_token += static_cast<double>(last.values_out());
  head.backward_moments.back().compute_elements_per_token += static_cast<double>(last.values_out());
  spec.blocks.push_back(std::move(head));
  spec.dim = last.out;
  return spec;
}

nlohmann::json settings(const Recipe::Model& model) {
  return {{"embedding_size", model.embedding_size},
          {"hidden_sizes", model.hidden_sizes},
          {"depths", model.depths},
          {"layer_type", model.layer_type},
          {"activation", activation_of(model)},
          {"downsample_in_first_stage", model.downsample_in_first_stage},
          {"downsample_in_bottleneck", model.downsample_in_bottleneck}};
}

}  // namespace

Conv stem_of(const Recipe::Model& model) {
  return {.name = "stem", .in = 3, .out = model.embedding_size, .kernel = 7, .stride = 2, .size_in = model.image_size};
}

int64_t pooled_size(const Recipe::Model& model) { return (stem_of(model).size_out() + 2 - 3) / 2 + 1; }

std::vector<ResidualLayer> layers_of(const Recipe::Model& model) {
  std::vector<ResidualLayer> layers;
  int64_t in = model.embedding_size, size = pooled_size(model);
  for (size_t stage = 0; stage < model.hidden_sizes.size(); ++stage)
    for (int64_t depth = 0; depth < model.depths[stage]; ++depth) {
      const int64_t out = model.hidden_sizes[stage];
      const int64_t stride = depth == 0 && (stage > 0 || model.downsample_in_first_stage) ? 2 : 1;
      ResidualLayer layer{.name = fmt::format("stages.{}.layers.{}", stage, depth)};
      const auto add = [&](int64_t from, int64_t to, int64_t kernel, int64_t step, int64_t size_in) {
        layer.branch.push_back({.name = fmt::format("{}.{}", layer.name, layer.branch.size()),
                                .in = from,
                                .out = to,
                                .kernel = kernel,
                                .stride = step,
                                .size_in = size_in});
        return layer.branch.back().size_out();
      };
      if (in != out || stride != 1)
        layer.shortcut.push_back(
            {.name = layer.name + ".shortcut", .in = in, .out = out, .kernel = 1, .stride = stride, .size_in = size});
      if (model.layer_type == "bottleneck") {
        const int64_t reduced = out / bottleneck_reduction;
        const int64_t first = add(in, reduced, 1, model.downsample_in_bottleneck ? stride : 1, size);
        const int64_t second = add(reduced, reduced, 3, model.downsample_in_bottleneck ? 1 : stride, first);
        size = add(reduced, out, 1, 1, second);
      } else {
        size = add(out, out, 3, 1, add(in, out, 3, stride, size));
      }
      in = out;
      layers.push_back(std::move(layer));
    }
  return layers;
}

}  // namespace runner::resnet

namespace runner {

const Family resnet_family = {
    .make_spec = resnet::make_spec,
    .settings = resnet::settings,
    .hf_tensor = [](const auto&, const std::string& name) { return resnet::hf_tensor(name); },
    .hf_ignorable = [](const auto&, const std::string& name) { return name.ends_with(".num_batches_tracked"); },
    .model_from_hf_config = resnet::model_from_hf_config,
    .hf_config = resnet::hf_config};

}  // namespace runner
