// Vision Transformer (Dosovitskiy et al. 2021, arXiv:2010.11929): patches of an image as tokens, a class token, learned positions,
// pre-LayerNorm layers with attention in both directions.
#include "runner/base/error.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/family.hpp"
#include "runner/models/gpt/gpt.hpp"
#include "runner/models/spec_parts.hpp"
#include "runner/models/vit/vit.hpp"
#include "strategies/engine/row_batch.hpp"

namespace runner::vit {

namespace {

void add_norm(BlockSpec& block, const std::string& name, int64_t dim) {
  block.parameters.push_back(vector_parameter(name + ".weight", dim, Init::Kind::ones));
  block.parameters.push_back(vector_parameter(name + ".bias", dim, Init::Kind::zeros));
}

void add_linear(BlockSpec& block, const Recipe::Model& model, const std::string& name, int64_t out, int64_t in,
                bool bias) {
  block.parameters.push_back(matrix_parameter(name + ".weight", out, in, model.init_std));
  if (bias) block.parameters.push_back(vector_parameter(name + ".bias", out, Init::Kind::zeros));
}

/// Patches through a convolution, the class token and the positions.
BlockSpec embedding_block(const Recipe::Model& model) {
  BlockSpec block{.name = "embedding", .layer = "embedding"};
  const int64_t tokens = tokens_of(model), patches = tokens - 1, pixels = pixels_of(model),
                patch = 3 * model.patch_size * model.patch_size;
  const Init init{Init::Kind::normal, model.init_std};
  block.parameters = {
      {.name = "embedding.class_token", .shape = {1, 1, model.dim}, .init = init},
      {.name = "embedding.positions", .shape = {1, tokens, model.dim}, .init = init},
      {.name = "embedding.patches.weight", .shape = {model.dim, 3, model.patch_size, model.patch_size}, .init = init},
      vector_parameter("embedding.patches.bias", model.dim, Init::Kind::zeros)};
  const auto t = static_cast<double>(tokens), d = static_cast<double>(model.dim), x = static_cast<double>(pixels) / t;
  block.forward_flops_per_token = 2.0 * static_cast<double>(patches * patch) * d / t;
  block.saved.compute_elements_per_token = 2 * x;  // the image, and its patches as rows
  block.output_elements_per_token = d;
  block.forward_moments = {{.compute_elements_per_token = 2 * x + 3 * d}};
  const int64_t patch_elements = elements_of(block.parameters, {".patches.weight", ".patches.bias"});
  block.backward_moments = {{.compute_elements_per_token = 2 * x + 2 * d,
                             .arriving = patch_elements,
                             .released_per_token = d,
                             .out_features = model.dim,
                             .in_features = patch},
                            {.compute_elements_per_token = 2 * x + d, .arrived = block.parameter_count()}};
  return block;
}

/// Moments of high memory use in backward, in order: output, attention, values, keys, queries, norm.
std::vector<MemoryMoment> attention_moments(const BlockSpec& block, const Recipe::Model& model) {
  const auto d = static_cast<double>(model.dim), saved = block.saved.compute_elements_per_token;
  const double masked = masked_elements(model);
  const auto elements = [&](const char* name) {
    return elements_of(block.parameters, {std::string(".") + name + ".weight", std::string(".") + name + ".bias"});
  };
  const int64_t out = elements("out"), v = elements("value"), k = elements("key"), q = elements("query");
  const auto product = [&](double width, int64_t arrived, int64_t arriving) {
    return MemoryMoment{.compute_elements_per_token = width * d,
                        .arrived = arrived,
                        .arriving = arriving,
                        .released_per_token = d,
                        .out_features = model.dim,
                        .in_features = model.dim};
  };
  auto first = product(0, 0, out);
  first.compute_elements_per_token = saved + 2 * d + masked;
  first.released_per_token = masked;
  return {first,
          {.compute_elements_per_token = 11 * d, .arrived = out},
          product(7, out, v),
          product(7, out + v, k),
          product(6, out + v + k, q),
          {.compute_elements_per_token = 4 * d, .arrived = block.parameter_count()}};
}

BlockSpec attention_block(const Recipe::Model& model, const std::string& layer) {
  BlockSpec block{.name = layer + ".attention", .layer = layer};
  add_norm(block, layer + ".attention_norm", model.dim);
  for (const char* name : {"query", "key", "value"})
    add_linear(block, model, layer + ".attention." + name, model.dim, model.dim, model.bias);
  add_linear(block, model, layer + ".attention.out", model.dim, model.dim, true);
  block.forward_flops_per_token =
      matrix_flops_per_token(block.parameters) + attention_flops_per_token(model.dim, tokens_of(model));
  // Block input, normed input, queries, keys, values, attention output.
  block.saved.compute_elements_per_token = static_cast<double>(6 * model.dim);
  block.saved.float32_per_token = 2 + static_cast<double>(model.n_heads);
  std::vector<std::string> shared;
  for (const char* name : {"query", "key", "value"}) shared.push_back(layer + ".attention." + name + ".weight");
  block.inputs = {{.matrices = shared, .elements_per_token = static_cast<double>(model.dim)}};
  block.output_elements_per_token = static_cast<double>(model.dim);
  block.backward_moments = attention_moments(block, model);
  return block;
}

BlockSpec head_block(const Recipe::Model& model, int64_t outputs) {
  return one_token_head(task_head_block(model.dim, outputs),
                        {vector_parameter("norm.weight", model.dim, Init::Kind::ones),
                         vector_parameter("norm.bias", model.dim, Init::Kind::zeros)},
                        model.dim, tokens_of(model));
}

ModelSpec make_spec(const Recipe::Model& model, int64_t outputs, int64_t, RowKind, const TensorDivision&,
                    const ContextDivision&) {
  check_gelu(model);
  if (model.image_size % model.patch_size != 0)
    throw usage_error("model.patch_size = {}: does not divide model.image_size = {}", model.patch_size,
                      model.image_size);
  if (model.dim % model.n_heads != 0)
    throw usage_error("model.n_heads = {}: does not divide model.dim = {}", model.n_heads, model.dim);
  ModelSpec spec;
  spec.batch = {pixels_field(model.image_size)};
  BlockSpec input{.name = "input", .kind = BlockKind::embedding};
  input.output_elements_per_token = static_cast<double>(pixels_of(model)) / static_cast<double>(tokens_of(model));
  input.passes_field = row_field::input;
  spec.blocks.push_back(std::move(input));
  spec.blocks.push_back(embedding_block(model));
  for (int64_t i = 0; i < model.n_layers; ++i) {
    const auto layer = fmt::format("blocks.{}", i);
    spec.blocks.push_back(attention_block(model, layer));
    spec.blocks.push_back(gpt::mlp_block(model, layer));
  }
  spec.blocks.push_back(head_block(model, outputs));
  spec.dim = model.dim;
  spec.seq_len = tokens_of(model);
  return spec;
}

nlohmann::json settings(const Recipe::Model& model) {
  return {{"n_layers", model.n_layers},
          {"dim", model.dim},
          {"n_heads", model.n_heads},
          {"hidden_dim", gpt::hidden_dim(model)},
          {"image_size", model.image_size},
          {"patch_size", model.patch_size},
          {"norm_eps", model.norm_eps},
          {"activation", activation_of(model)},
          {"bias", model.bias}};
}

}  // namespace

int64_t pixels_of(const Recipe::Model& model) { return 3 * model.image_size * model.image_size; }

int64_t tokens_of(const Recipe::Model& model) {
  const int64_t across = model.image_size / model.patch_size;
  return across * across + 1;
}

}  // namespace runner::vit

namespace runner {

const Family vit_family = {
    .make_spec = vit::make_spec,
    .settings = vit::settings,
    .hf_tensor = [](const auto&, const std::string& name) { return vit::hf_tensor(name); },
    .hf_ignorable = [](const auto&, const std::string& name) { return name.starts_with("vit.pooler."); },
    .model_from_hf_config = vit::model_from_hf_config,
    .hf_config = vit::hf_config};

}  // namespace runner
