// llama as Hugging Face's LlamaForCausalLM: tensor names, and conversion of config.json in both directions. Both use
// rotary pairs (i, i + half), so q and k need no permutation.
#include <regex>

#include "runner/base/text.hpp"
#include "runner/models/hf_config_reader.hpp"
#include "runner/models/llama/llama.hpp"

namespace runner::llama {

namespace {

struct LlamaBlockName {
  const char* ours;
  const char* theirs;
};
constexpr LlamaBlockName llama_block_names[] = {
    {"attention_norm", "input_layernorm"}, {"attention.wq", "self_attn.q_proj"},
    {"attention.wk", "self_attn.k_proj"},  {"attention.wv", "self_attn.v_proj"},
    {"attention.wo", "self_attn.o_proj"},  {"mlp_norm", "post_attention_layernorm"},
    {"mlp.w1", "mlp.gate_proj"},           {"mlp.w3", "mlp.up_proj"},
    {"mlp.w2", "mlp.down_proj"},
};

/// Up to transformers 4, rope_theta and rope_scaling are at the top level; from 5 on they are in `rope_parameters`.
void read_rope(const HfConfigReader& config, Recipe::Model& model) {
  bool nested = config.has("rope_parameters");
  model.rope_theta = (nested ? config.table("rope_parameters") : config).get("rope_theta", 10000.0);
  if (!nested && !config.has("rope_scaling")) return;
  HfConfigReader scaling = config.table(nested ? "rope_parameters" : "rope_scaling");
  auto type = scaling.get<std::string>("rope_type", scaling.get<std::string>("type", "default"));
  if (type == "default") return;
  if (type != "llama3")
    throw usage_error("config.json: rope_type = \"{}\" is not supported; allowed: default or llama3", type);
  model.rope_scaling = Recipe::Model::RopeScaling{
      scaling.require<double>("factor"), scaling.require<double>("low_freq_factor"),
      scaling.require<double>("high_freq_factor"), scaling.require<int64_t>("original_max_position_embeddings")};
}

}  // namespace

HfTensor hf_tensor(const std::string& name) {
  auto inside = [](std::string theirs) { return HfTensor{"model." + theirs, theirs, false}; };
  if (name == "embedding.tokens.weight") return inside("embed_tokens.weight");
  if (name == "head.norm.weight") return inside("norm.weight");
  if (name == "head.weight") return {"lm_head.weight", "", false};
  auto parts = split(name, '.');
  for (const auto& entry : llama_block_names)
    if (name == fmt::format("blocks.{}.{}.weight", parts[1], entry.ours))
      return inside(fmt::format("layers.{}.{}.weight", parts[1], entry.theirs));
  RUNNER_CHECK(false, "`{}` is not a parameter of llama", name);
  return {};
}

bool hf_ignorable(const std::string& name) {
  static const std::regex frequencies(R"(layers\.\d+\.self_attn\.rotary_emb\.inv_freq)");
  return std::regex_match(name, frequencies);
}

Recipe::Model model_from_hf_config(const nlohmann::json& config) {
  HfConfigReader reader(config);
  reader.expect("hidden_act", "silu");
  reader.expect("attention_bias", false);
  reader.expect("mlp_bias", false);
  reader.expect("attention_dropout", 0.0);
  Recipe::Model model;
  model.name = "llama";
  model.vocab_size = reader.require<int64_t>("vocab_size");
  model.dim = reader.require<int64_t>("hidden_size");
  model.hidden_dim = reader.require<int64_t>("intermediate_size");
  model.n_layers = reader.require<int64_t>("num_hidden_layers");
  model.n_heads = reader.require<int64_t>("num_attention_heads");
  if (model.n_heads < 1) throw usage_error("config.json: num_attention_heads = {}: must be at least 1", model.n_heads);
  model.n_kv_heads = reader.get("num_key_value_heads", model.n_heads);
  reader.expect("head_dim", model.dim / model.n_heads);
  model.max_seq_len = reader.get<int64_t>("max_position_embeddings", 2048);
  model.norm_eps = reader.get("rms_norm_eps", 1e-6);
  model.init_std = reader.get("initializer_range", 0.02);
  model.tie_embeddings = reader.get("tie_word_embeddings", false);
  read_rope(reader, model);
  return model;
}

nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec) {
  nlohmann::json scaling = nullptr;
  if (model.rope_scaling)
    scaling = {{"rope_type", "llama3"},
               {"factor", model.rope_scaling->factor},
               {"low_freq_factor", model.rope_scaling->low_freq_factor},
               {"high_freq_factor", model.rope_scaling->high_freq_factor},
               {"original_max_position_embeddings", model.rope_scaling->original_max_position_embeddings}};
  // model.dropout is not exported: LlamaConfig has only attention_dropout, and dropout does not affect the outputs of a
  // trained model.
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", spec.vocab_size},
          {"hidden_size", model.dim},
          {"intermediate_size", hidden_dim(model)},
          {"num_hidden_layers", model.n_layers},
          {"num_attention_heads", model.n_heads},
          {"num_key_value_heads", n_kv_heads(model)},
          {"head_dim", model.dim / model.n_heads},
          {"hidden_act", "silu"},
          {"max_position_embeddings", model.max_seq_len},
          {"rms_norm_eps", model.norm_eps},
          {"initializer_range", model.init_std},
          {"rope_theta", model.rope_theta},
          {"rope_scaling", scaling},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"mlp_bias", false},
          {"tie_word_embeddings", model.tie_embeddings},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr}};
}

}  // namespace runner::llama
