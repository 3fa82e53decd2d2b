// Residual networks (He et al. 2016, arXiv:1512.03385) in the form v1.5: of a bottleneck, the 3x3 convolution has the stride.
// The model has the tensors and settings of Hugging Face's ResNetForImageClassification.
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/family.hpp"
#include "runner/models/hf_config_reader.hpp"
#include "runner/models/hf_ignored_keys.hpp"
#include "runner/models/hf_labels.hpp"
#include "runner/models/resnet/resnet.hpp"
#include "runner/models/spec_parts.hpp"
#include "strategies/engine/row_batch.hpp"

namespace runner::resnet {

namespace {

HfTensor hf_tensor(const std::string& name) {
  if (name.starts_with("head.")) return {"classifier.1." + name.substr(5)};
  const auto parts = split(name, '.');
  const std::string part = parts[parts.size() - 2] == "conv" ? "convolution" : "normalization";
  const auto inside = [&](const std::string& module) {
    const auto theirs = module + "." + part + "." + parts.back();
    return HfTensor{"resnet." + theirs, {theirs}};
  };
  if (parts[0] == "stem") return inside("embedder.embedder");
  // stages.I.layers.J.K or stages.I.layers.J.shortcut
  const auto layer = fmt::format("encoder.stages.{}.layers.{}", parts[1], parts[3]);
  return inside(parts[4] == "shortcut" ? layer + ".shortcut" : layer + ".layer." + parts[4]);
}

Recipe::Model model_from_hf_config(const nlohmann::json& config) {
  HfConfigReader reader(config);
  reader.expect("num_channels", 3);
  Recipe::Model model = family_defaults("resnet");
  model.embedding_size = reader.get<int64_t>("embedding_size", 64);
  model.hidden_sizes = reader.get("hidden_sizes", std::vector<int64_t>{256, 512, 1024, 2048});
  model.depths = reader.get("depths", std::vector<int64_t>{3, 4, 6, 3});
  model.layer_type = reader.get<std::string>("layer_type", "bottleneck");
  model.downsample_in_first_stage = reader.get("downsample_in_first_stage", false);
  model.downsample_in_bottleneck = reader.get("downsample_in_bottleneck", false);
  model.activation = reader.get<std::string>("hidden_act", "relu");
  if (*model.activation != "relu" && *model.activation != "gelu" && *model.activation != "silu")
    throw usage_error("config.json: hidden_act = \"{}\" is not supported; allowed: relu, gelu or silu",
                      *model.activation);
  model.num_labels = reader.has("id2label") ? std::ssize(config.at("id2label")) : reader.get<int64_t>("num_labels", 2);
  // The ignored keys are those that a backbone of other models needs, and names of runner's own files.
  reader.check_all_read("of resnet", hf_ignored_keys_and({"out_features", "out_indices", "stage_names", "pruned_heads",
                                                          "tie_word_embeddings", "crop"}));
  return model;
}

nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec) {
  nlohmann::json config = label_tables(spec.vocab_size);
  config.update({{"architectures", {"ResNetForImageClassification"}},
                 {"model_type", "resnet"},
                 {"num_channels", 3},
                 {"embedding_size", model.embedding_size},
                 {"hidden_sizes", model.hidden_sizes},
                 {"depths", model.depths},
                 {"layer_type", model.layer_type},
                 {"hidden_act", activation_of(model) == "gelu_tanh" ? "gelu_pytorch_tanh" : activation_of(model)},
                 {"downsample_in_first_stage", model.downsample_in_first_stage},
                 {"downsample_in_bottleneck", model.downsample_in_bottleneck}});
  return config;
}

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

BlockSpec stem_block(const Recipe::Model& model, ModelSpec& spec) {
  const Conv conv = stem_of(model);
  BlockSpec block{.name = "stem", .layer = "stem"};
  add_conv(block, spec, conv);
  block.forward_flops_per_token = flops_of(conv);
  block.output_elements_per_token = static_cast<double>(conv.out * pooled_size(model) * pooled_size(model));
  return block;
}

BlockSpec layer_block(const ResidualLayer& layer, ModelSpec& spec) {
  BlockSpec block{.name = layer.name, .layer = layer.name};
  for (const auto* convolutions : {&layer.shortcut, &layer.branch})
    for (const auto& conv : *convolutions) {
      add_conv(block, spec, conv);
      block.forward_flops_per_token += flops_of(conv);
    }
  block.output_elements_per_token = static_cast<double>(layer.branch.back().values_out());
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
  spec.blocks.push_back(input_block(static_cast<double>(3 * model.image_size * model.image_size)));
  spec.blocks.push_back(stem_block(model, spec));
  const auto layers = layers_of(model);
  for (const auto& layer : layers) spec.blocks.push_back(layer_block(layer, spec));
  const auto& last = layers.back().branch.back();
  spec.blocks.push_back(task_head_block(last.out, outputs));
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
