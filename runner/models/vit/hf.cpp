// vit as Hugging Face's ViTForImageClassification: tensor names, and conversion of config.json in both directions.
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/gpt/gpt.hpp"
#include "runner/models/hf_config_reader.hpp"
#include "runner/models/hf_ignored_keys.hpp"
#include "runner/models/hf_labels.hpp"
#include "runner/models/vit/vit.hpp"

namespace runner::vit {

namespace {

struct Name {
  const char *ours, *theirs;
};
constexpr Name block_names[] = {
    {"attention_norm", "layernorm_before"},
    {"attention.query", "attention.attention.query"},
    {"attention.key", "attention.attention.key"},
    {"attention.value", "attention.attention.value"},
    {"attention.out", "attention.output.dense"},
    {"mlp_norm", "layernorm_after"},
    {"mlp.up", "intermediate.dense"},
    {"mlp.down", "output.dense"},
};
constexpr Name other_names[] = {
    {"embedding.class_token", "embeddings.cls_token"},
    {"embedding.positions", "embeddings.position_embeddings"},
    {"embedding.patches.weight", "embeddings.patch_embeddings.projection.weight"},
    {"embedding.patches.bias", "embeddings.patch_embeddings.projection.bias"},
    {"norm.weight", "layernorm.weight"},
    {"norm.bias", "layernorm.bias"},
};

}  // namespace

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
  const auto activation = reader.get<std::string>("hidden_act", "gelu");
  if (activation != "gelu" && activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    throw usage_error("config.json: hidden_act = \"{}\" is not supported; allowed: gelu, gelu_new or gelu_pytorch_tanh",
                      activation);
  model.activation = activation == "gelu" ? "gelu" : "gelu_tanh";
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

}  // namespace runner::vit
