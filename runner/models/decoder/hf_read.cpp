// config.json of a decoder -> [model]. Strict: an unknown key, or a value that is not supported, is an error.
#include <algorithm>
#include <cmath>

#include "runner/config/model_families.hpp"
#include "runner/models/decoder/hf_config.hpp"
#include "runner/models/hf_ignored_keys.hpp"
#include "runner/models/hf_labels.hpp"

namespace runner::decoder {

namespace {

const HfFamily& family_of_type(const HfConfigReader& reader) {
  const auto type = reader.require<std::string>("model_type");
  const auto found = std::ranges::find(hf_families(), type, &HfFamily::type);
  RUNNER_CHECK(found != hf_families().end(), "{} is not a decoder", type);
  return *found;
}

std::string activation(const HfConfigReader& reader, const std::string& family) {
  const auto act = reader.get<std::string>("hidden_act", family == "gpt_neox" ? "gelu" : "silu");
  const auto own = reader.get<std::string>("hidden_activation", "");
  // Early files of Gemma 1 name "gelu", and the models were trained with the tanh form.
  if (family == "gemma" && own.empty() && (act == "gelu" || act == "silu")) return "gelu_tanh";
  const bool gemma = scales_embeddings(family);
  const auto& name = !gemma || own.empty() ? act : own;
  // Gemma 2 and 3 read only hidden_activation.
  if (gemma && own.empty() && (family != "gemma" || !reader.has("hidden_act"))) return "gelu_tanh";
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu" || name == "relu") return name;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return "gelu_tanh";
  throw usage_error(
      "config.json: {} = \"{}\" is not supported; allowed: silu, gelu, gelu_pytorch_tanh, gelu_new or relu",
      gemma ? "hidden_activation" : "hidden_act", name);
}

void read_sizes(const HfConfigReader& reader, const HfFamily& family, Recipe::Model& model) {
  model.vocab_size = reader.require<int64_t>("vocab_size");
  model.dim = reader.require<int64_t>("hidden_size");
  model.hidden_dim = reader.require<int64_t>("intermediate_size");
  model.n_layers = reader.require_count("num_hidden_layers");
  model.n_heads = reader.require_count("num_attention_heads");
  if (family.name != "gpt_neox") {
    const bool given = reader.contains("num_key_value_heads");
    const int64_t absent = given || family.kv_heads == 0 ? model.n_heads : family.kv_heads;
    model.n_kv_heads = reader.get("num_key_value_heads", absent);
  }
  const int64_t usual = model.dim / model.n_heads;
  const bool null = reader.contains("head_dim") && !reader.has("head_dim");
  const int64_t head = reader.get("head_dim", null || family.head_dim == 0 ? usual : family.head_dim);
  if (head != usual || model.dim % model.n_heads != 0) model.head_dim = head;
  model.max_seq_len = reader.get<int64_t>("max_position_embeddings", family.max_positions);
}

void read_biases(const HfConfigReader& reader, const HfFamily& family, Recipe::Model& model) {
  const bool usual = model.attention_bias == "all";  // gpt_neox
  if (family.attention_bias) model.attention_bias = reader.get("attention_bias", usual) ? "all" : "none";
  if (family.mlp_bias) model.mlp_bias = reader.get("mlp_bias", false);
}

void read_gemma(const HfConfigReader& reader, Recipe::Model& model) {
  reader.expect("use_bidirectional_attention", false);
  if (model.name == "gemma") return;
  const auto scalar = reader.get("query_pre_attn_scalar", 256.0);
  if (!(scalar > 0)) throw usage_error("config.json: query_pre_attn_scalar = {}: must be above 0", scalar);
  if (scalar != static_cast<double>(head_dim(model))) model.attention_scale = 1 / std::sqrt(scalar);
  auto cap = [&](const char* key, double absent) {
    return reader.contains(key) && !reader.has(key) ? 0.0 : reader.get(key, absent);
  };
  model.attention_softcap = cap("attn_logit_softcapping", model.attention_softcap);
  model.logits_softcap = cap("final_logit_softcapping", model.logits_softcap);
}

void read_smollm3(const HfConfigReader& reader, Recipe::Model& model) {
  const auto interval = reader.get<int64_t>("no_rope_layer_interval", 4);
  model.no_rope_every = interval;
  if (!reader.has("no_rope_layers")) return;
  const auto layers = reader.require<std::vector<int64_t>>("no_rope_layers");
  if (static_cast<int64_t>(layers.size()) != model.n_layers)
    throw usage_error("config.json: no_rope_layers has {} entries, and num_hidden_layers = {}", layers.size(),
                      model.n_layers);
  auto first = std::find(layers.begin(), layers.end(), 0);
  model.no_rope_every = first == layers.end() ? 0 : first - layers.begin() + 1;
  for (int64_t i = 0; i < model.n_layers; ++i)
    if (rotates(model, i) != (layers[static_cast<size_t>(i)] != 0))
      throw usage_error("config.json: no_rope_layers is not a layer in every {}: other choices are not supported",
                        model.no_rope_every);
}

void read_own(const HfConfigReader& reader, Recipe::Model& model) {
  const auto& name = model.name;
  if (name == "gpt_neox") {
    model.dropout = reader.get("hidden_dropout", 0.0);
    model.parallel_residual = reader.get("use_parallel_residual", true);
  }
  if (name == "phi3") {
    reader.expect("resid_pdrop", 0.0);
    reader.expect("embd_pdrop", 0.0);
    reader.contains("original_max_position_embeddings");  // matters with longrope, whose reader reads it
  }
  if (scales_embeddings(name)) read_gemma(reader, model);
  if (name == "smollm3") read_smollm3(reader, model);
  if (name != "granite") return;
  model.embedding_multiplier = reader.get("embedding_multiplier", 1.0);
  model.logits_scaling = reader.get("logits_scaling", 1.0);
  model.residual_multiplier = reader.get("residual_multiplier", 1.0);
  model.attention_scale = reader.get("attention_multiplier", 1.0);
}

}  // namespace

Recipe::Model model_from_hf_config(const nlohmann::json& config) {
  const HfConfigReader reader(config);
  const auto& family = family_of_type(reader);
  auto model = family_defaults(family.name);
  read_sizes(reader, family, model);
  const auto act = activation(reader, family.name);
  if (act != activation_of(model)) model.activation = act;
  model.norm_eps = reader.get(model.norm == "layer" ? "layer_norm_eps" : "rms_norm_eps", family.eps);
  model.init_std = reader.get("initializer_range", 0.02);
  model.tie_embeddings = reader.get("tie_word_embeddings", family.tied);
  reader.expect("attention_dropout", 0.0);
  reader.expect("pretraining_tp", 1);
  reader.expect("pruned_heads", nlohmann::json::object());
  read_biases(reader, family, model);
  read_own(reader, model);
  read_windows(reader, family, model);
  read_rope(reader, model);
  read_labels(config, model);
  reader.check_all_read("of " + family.type, hf_ignored_keys());
  return model;
}

}  // namespace runner::decoder
