// [model] -> config.json of a decoder, in the form that transformers 4 and 5 read. A model that the class cannot describe
// is refused: what was written is read back and compared.
#include <cmath>

#include "runner/config/config.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/decoder/hf_config.hpp"
#include "runner/models/hf_labels.hpp"

namespace runner::decoder {

namespace {

std::string hf_activation(const std::string& ours) { return ours == "gelu_tanh" ? "gelu_pytorch_tanh" : ours; }

nlohmann::json or_null(double cap) { return cap > 0 ? nlohmann::json(cap) : nlohmann::json(); }

void write_own(const Recipe::Model& model, nlohmann::json& config) {
  const auto& name = model.name;
  const double scale = attention_form(model, 0).scale_for(head_dim(model));
  if (name == "gpt_neox") {
    config["use_parallel_residual"] = model.parallel_residual;
    config["hidden_dropout"] = 0.0;
  } else if (name == "gemma2" || name == "gemma3") {
    double scalar = 1 / (scale * scale);
    if (!model.attention_scale) scalar = static_cast<double>(head_dim(model));
    if (std::abs(scalar - std::round(scalar)) < 1e-9 * scalar) scalar = std::round(scalar);
    config["query_pre_attn_scalar"] =
        scalar == std::round(scalar) ? nlohmann::json(static_cast<int64_t>(scalar)) : nlohmann::json(scalar);
    config["attn_logit_softcapping"] = or_null(model.attention_softcap);
    config["final_logit_softcapping"] = or_null(model.logits_softcap);
  } else if (name == "smollm3") {
    std::vector<int> rotary;
    for (int64_t i = 0; i < model.n_layers; ++i) rotary.push_back(rotates(model, i));
    config["no_rope_layers"] = rotary;
    if (model.no_rope_every > 0) config["no_rope_layer_interval"] = model.no_rope_every;
  } else if (name == "granite") {
    config["embedding_multiplier"] = embedding_multiplier(model);
    config["logits_scaling"] = model.logits_scaling;
    config["residual_multiplier"] = model.residual_multiplier;
    config["attention_multiplier"] = scale;
  }
}

/// Throws Error(usage) with the first setting that config.json does not keep.
void check_kept(const Recipe::Model& model, const nlohmann::json& config) {
  const auto here = settings(model), there = settings(model_from_hf_config(config));
  for (const auto& [key, value] : here.items())
    if (value != there.at(key))
      throw usage_error(
          "model.{} = {}: Hugging Face's {} has no such option (there it is {}), so this model cannot be "
          "exported to it",
          key, toml_value(value), hf_family(model.name).architecture,
          there.at(key).is_null() ? "unset" : toml_value(there.at(key)));
}

/// The class of models with labels.
std::string label_architecture(const HfFamily& family) {
  if (family.name == "granite")
    throw usage_error(
        "Hugging Face's transformers has no class for {} with labels, so this model cannot be exported to it",
        family.name);
  if (family.name == "gemma3") return "Gemma3TextForSequenceClassification";
  const auto& name = family.architecture;
  return name.substr(0, name.find("ForCausalLM")) + "ForSequenceClassification";
}

}  // namespace

nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec) {
  const auto& family = hf_family(model.name);
  const auto act = hf_activation(activation_of(model));
  // model.dropout is not exported: most classes have only attention_dropout, and dropout does not affect the outputs of a
  // trained model.
  nlohmann::json config = {{"architectures", {family.architecture}},
                           {"model_type", family.type},
                           {"vocab_size", spec.vocab_size},
                           {"hidden_size", model.dim},
                           {"intermediate_size", hidden_dim(model)},
                           {"num_hidden_layers", model.n_layers},
                           {"num_attention_heads", model.n_heads},
                           {"max_position_embeddings", model.max_seq_len},
                           {model.norm == "layer" ? "layer_norm_eps" : "rms_norm_eps", model.norm_eps},
                           {"initializer_range", model.init_std},
                           {"attention_dropout", 0.0},
                           {"tie_word_embeddings", model.tie_embeddings},
                           {"bos_token_id", nullptr},
                           {"eos_token_id", nullptr}};
  if (family.name != "gpt_neox") {
    config["num_key_value_heads"] = n_kv_heads(model);
    if (family.name != "phi3") config["head_dim"] = head_dim(model);
  }
  config["hidden_act"] = act;
  if (scales_embeddings(family.name)) config["hidden_activation"] = act;
  if (family.attention_bias) config["attention_bias"] = model.attention_bias == "all";
  if (family.mlp_bias) config["mlp_bias"] = model.mlp_bias;
  if (family.name == "phi3") config["pad_token_id"] = nullptr;  // the class's default may be outside of the vocabulary
  write_windows(model, family, config);
  write_rope(model, config);
  write_own(model, config);
  check_kept(model, config);
  if (!spec.task) return config;
  config["architectures"] = {label_architecture(family)};
  config["pad_token_id"] = nullptr;  // whoever writes the folder may know it
  write_labels(model, *spec.task, config);
  return config;
}

}  // namespace runner::decoder
