// Names of a decoder's tensors in Hugging Face checkpoints. Both use rotary pairs (i, i + half), so q and k need no
// permutation. Phi-3 and GPT-NeoX store several of our matrices in one tensor.
#include <regex>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/decoder/decoder.hpp"
#include "runner/models/family.hpp"

namespace runner::decoder {

namespace {

constexpr ModuleName llama_names[] = {
    {"attention_norm", "input_layernorm"},
    {"attention.wq", "self_attn.q_proj"},
    {"attention.wk", "self_attn.k_proj"},
    {"attention.wv", "self_attn.v_proj"},
    {"attention.wo", "self_attn.o_proj"},
    {"attention.q_norm", "self_attn.q_norm"},
    {"attention.k_norm", "self_attn.k_norm"},
    {"mlp_norm", "post_attention_layernorm"},
    {"mlp.w1", "mlp.gate_proj"},
    {"mlp.w3", "mlp.up_proj"},
    {"mlp.w2", "mlp.down_proj"},
};
/// With norms after the branches, as in Gemma 2 and 3 and OLMo 2.
constexpr ModuleName post_norm_names[] = {
    {"attention_post_norm", "post_attention_layernorm"},
    {"mlp_norm", "pre_feedforward_layernorm"},
    {"mlp_post_norm", "post_feedforward_layernorm"},
};
constexpr ModuleName neox_names[] = {
    {"attention_norm", "input_layernorm"},
    {"attention.wq", "attention.query_key_value"},
    {"attention.wk", "attention.query_key_value"},
    {"attention.wv", "attention.query_key_value"},
    {"attention.wo", "attention.dense"},
    {"mlp_norm", "post_attention_layernorm"},
    {"mlp.w1", "mlp.dense_h_to_4h"},
    {"mlp.w2", "mlp.dense_4h_to_h"},
};
constexpr ModuleName phi3_names[] = {
    {"attention.wq", "self_attn.qkv_proj"}, {"attention.wk", "self_attn.qkv_proj"},
    {"attention.wv", "self_attn.qkv_proj"}, {"mlp.w1", "mlp.gate_up_proj"},
    {"mlp.w3", "mlp.gate_up_proj"},
};

/// Hugging Face's name of a module of a layer.
std::string module_name(const Recipe::Model& model, const std::string& ours) {
  if (model.name == "gpt_neox") return find_name(neox_names, ours);
  std::string name;
  if (model.name == "phi3") name = find_name(phi3_names, ours);
  if (name.empty() && model.norm_place != "pre") name = find_name(post_norm_names, ours);
  return name.empty() ? find_name(llama_names, ours) : name;
}

/// The rows of a module in a tensor that it shares with others.
std::optional<HfRows> shared_rows(const Recipe::Model& model, const std::string& ours) {
  const int64_t head = head_dim(model), q = model.n_heads * head, kv = n_kv_heads(model) * head;
  const int place = ours == "attention.wq" ? 0 : ours == "attention.wk" ? 1 : ours == "attention.wv" ? 2 : -1;
  if (model.name == "gpt_neox") {  // per head: query, key, value
    if (place < 0) return {};
    return HfRows{.first = place * head, .count = head, .stride = 3 * head, .groups = model.n_heads, .all = 3 * q};
  }
  if (model.name != "phi3") return {};
  const int64_t hidden = hidden_dim(model);
  if (place == 0) return HfRows{.first = 0, .count = q, .all = q + 2 * kv};
  if (place > 0) return HfRows{.first = q + (place - 1) * kv, .count = kv, .all = q + 2 * kv};
  if (ours == "mlp.w1") return HfRows{.first = 0, .count = hidden, .all = 2 * hidden};
  if (ours == "mlp.w3") return HfRows{.first = hidden, .count = hidden, .all = 2 * hidden};
  return {};
}

}  // namespace

HfTensor hf_tensor(const Recipe::Model& model, const std::string& name) {
  const bool neox = model.name == "gpt_neox";
  auto inside = [&](const std::string& theirs) { return HfTensor{(neox ? "gpt_neox." : "model.") + theirs, {theirs}}; };
  const auto parts = split(name, '.');
  const auto& kind = parts.back();
  if (name == "embedding.tokens.weight") return inside(neox ? "embed_in.weight" : "embed_tokens.weight");
  if (name == "head.weight" && labels_texts(model)) return {"score.weight"};
  if (name == "head.weight") return {neox ? "embed_out.weight" : "lm_head.weight", {}};
  if (parts[0] == "head") return inside((neox ? "final_layer_norm." : "norm.") + kind);
  const auto begin = parts[0].size() + parts[1].size() + 2;
  const auto ours = name.substr(begin, name.size() - begin - kind.size() - 1);
  const auto theirs = module_name(model, ours);
  RUNNER_CHECK(!theirs.empty(), "`{}` is not a parameter of {}", name, model.name);
  auto tensor = inside(fmt::format("layers.{}.{}.{}", parts[1], theirs, kind));
  tensor.rows = shared_rows(model, ours);
  return tensor;
}

bool hf_ignorable(const Recipe::Model& model, const std::string& name) {
  const bool labels = labels_texts(model);
  if ((labels || model.tie_embeddings) && (name == "lm_head.weight" || name == "embed_out.weight")) return true;
  if (!labels && name == "score.weight") return true;
  static const std::regex buffers(
      R"(((model|gpt_neox)\.)?(rotary_emb\.inv_freq|layers\.\d+\.(self_attn|attention)\.(rotary_emb\.inv_freq|bias|masked_bias)))");
  return std::regex_match(name, buffers);
}

}  // namespace runner::decoder
