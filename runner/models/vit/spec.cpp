// Vision Transformer (Dosovitskiy et al. 2021, arXiv:2010.11929): patches of an image as tokens, a class token, learned positions,
// pre-LayerNorm layers with attention in both directions.
// The model has the tensors and settings of Hugging Face's ViTForImageClassification.
#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/family.hpp"
#include "runner/models/gpt/gpt.hpp"
#include "runner/models/hf_config_reader.hpp"
#include "runner/models/hf_ignored_keys.hpp"
#include "runner/models/hf_labels.hpp"
#include "runner/models/spec_parts.hpp"
#include "strategies/engine/row_batch.hpp"

namespace runner::vit {

namespace {

/// Values of an image.
int64_t pixels_of(const Recipe::Model& model) { return 3 * model.image_size * model.image_size; }

/// Tokens that an image becomes: its patches and the class token.
int64_t tokens_of(const Recipe::Model& model) {
  const int64_t across = model.image_size / model.patch_size;
  return across * across + 1;
}

constexpr ModuleName block_names[] = {
    {"attention_norm", "layernorm_before"},
    {"attention.query", "attention.attention.query"},
    {"attention.key", "attention.attention.key"},
    {"attention.value", "attention.attention.value"},
    {"attention.out", "attention.output.dense"},
    {"mlp_norm", "layernorm_after"},
    {"mlp.up", "intermediate.dense"},
    {"mlp.down", "output.dense"},
};
constexpr ModuleName other_names[] = {
    {"embedding.class_token", "embeddings.cls_token"},
    {"embedding.positions", "embeddings.position_embeddings"},
    {"embedding.patches.weight", "embeddings.patch_embeddings.projection.weight"},
    {"embedding.patches.bias", "embeddings.patch_embeddings.projection.bias"},
    {"norm.weight", "layernorm.weight"},
    {"norm.bias", "layernorm.bias"},
};

HfTensor hf_tensor(const std::string& name) {
  const auto inside = [](const std::string& theirs) { return HfTensor{"vit." + theirs, {theirs}}; };
  if (name.starts_with("head.")) return {"classifier." + name.substr(5)};
  for (const auto& [ours, theirs] : other_names)
    if (name == ours) return inside(theirs);
  const auto parts = split(name, '.');
  for (const auto& [ours, theirs] : block_names)
    if (name == fmt::format("blocks.{}.{}.{}", parts[1], ours, parts.back()))
      return inside(fmt::format("encoder.layer.{}.{}.{}", parts[1], theirs, parts.back()));
  RUNNER_CHECK(false, "`{}` is not a parameter of vit", name);
  return {};
}

Recipe::Model model_from_hf_config(const nlohmann::json& config) {
  HfConfigReader reader(config);
  reader.expect("num_channels", 3);
  reader.expect("attention_probs_dropout_prob", 0.0);
  Recipe::Model model = family_defaults("vit");
  model.dim = reader.get<int64_t>("hidden_size", 768);
  model.n_layers = reader.get<int64_t>("num_hidden_layers", 12);
  model.n_heads = reader.get<int64_t>("num_attention_heads", 12);
  model.hidden_dim = reader.get<int64_t>("intermediate_size", 3072);
  model.image_size = reader.get<int64_t>("image_size", 224);
  model.patch_size = reader.get<int64_t>("patch_size", 16);
  model.norm_eps = reader.get("layer_norm_eps", 1e-12);
  model.dropout = reader.get("hidden_dropout_prob", 0.0);
  model.init_std = reader.get("initializer_range", 0.02);
  model.bias = reader.get("qkv_bias", true);
  model.activation = read_gelu(reader, "hidden_act", "gelu");
  if (reader.has("id2label"))
    model.num_labels = std::ssize(config.at("id2label"));
  else
    model.num_labels = reader.get<int64_t>("num_labels", 2);
  // The ignored keys are those of the pooler and the decoder of masked images, which a classifier does not have, and names of runner's own
  // files.
  reader.check_all_read("of vit", hf_ignored_keys_and({"encoder_stride", "pooler_act", "pooler_output_size",
                                                       "pruned_heads", "tie_word_embeddings", "crop"}));
  return model;
}

nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec) {
  nlohmann::json config = label_tables(spec.vocab_size);
  config.update({{"architectures", {"ViTForImageClassification"}},
                 {"model_type", "vit"},
                 {"hidden_size", model.dim},
                 {"num_hidden_layers", model.n_layers},
                 {"num_attention_heads", model.n_heads},
                 {"intermediate_size", gpt::hidden_dim(model)},
                 {"image_size", model.image_size},
                 {"patch_size", model.patch_size},
                 {"num_channels", 3},
                 {"layer_norm_eps", model.norm_eps},
                 {"hidden_act", activation_of(model) == "gelu" ? "gelu" : "gelu_new"},
                 {"hidden_dropout_prob", model.dropout},
                 {"attention_probs_dropout_prob", 0.0},
                 {"initializer_range", model.init_std},
                 {"qkv_bias", model.bias}});
  return config;
}

/// Patches through a convolution, the class token and the positions.
BlockSpec embedding_block(const Recipe::Model& model) {
  BlockSpec block{.name = "embedding", .layer = "embedding"};
  const int64_t tokens = tokens_of(model), patches = tokens - 1, patch = 3 * model.patch_size * model.patch_size;
  const Init init{Init::Kind::normal, model.init_std};
  block.parameters = {
      {.name = "embedding.class_token", .shape = {1, 1, model.dim}, .init = init},
      {.name = "embedding.positions", .shape = {1, tokens, model.dim}, .init = init},
      {.name = "embedding.patches.weight", .shape = {model.dim, 3, model.patch_size, model.patch_size}, .init = init},
      vector_parameter("embedding.patches.bias", model.dim, Init::Kind::zeros)};
  block.forward_flops_per_token = 2.0 * static_cast<double>(patches * patch * model.dim) / static_cast<double>(tokens);
  block.output_elements_per_token = static_cast<double>(model.dim);
  return block;
}

BlockSpec attention_block(const Recipe::Model& model, const std::string& layer) {
  BlockSpec block{.name = layer + ".attention", .layer = layer};
  block.parameters = layer_norm_parameters(layer + ".attention_norm", model.dim);
  for (const char* name : {"query", "key", "value"})
    add_linear(block, layer + ".attention." + name, model.dim, model.dim, model.init_std, model.bias);
  add_linear(block, layer + ".attention.out", model.dim, model.dim, model.init_std, /*bias=*/true);
  block.forward_flops_per_token =
      matrix_flops_per_token(block.parameters) + attention_flops_per_token(model.dim, tokens_of(model));
  block.output_elements_per_token = static_cast<double>(model.dim);
  return block;
}

BlockSpec head_block(const Recipe::Model& model, int64_t outputs) {
  return one_token_head(task_head_block(model.dim, outputs), layer_norm_parameters("norm", model.dim),
                        tokens_of(model));
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
  spec.blocks.push_back(input_block(static_cast<double>(pixels_of(model)) / static_cast<double>(tokens_of(model))));
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
