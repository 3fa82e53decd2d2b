// One specification for all decoders with rotary positions: the options in which the families of Llama, Mistral, Qwen,
// Gemma, Phi-3, GPT-NeoX, OLMo 2, SmolLM3 and Granite differ. Spec and module are built from it. Torch-free.
//
// A layer is two blocks: x += m * post(attention(pre(x))), then the same with the feed-forward. pre and post are norms
// that a family has or not, m is the residual multiplier. With a parallel residual both branches read the layer's input,
// x += attention(norm(x)) + feed-forward(norm(x)), so the layer is one block: a chain of blocks passes one tensor on, and
// a second block would need the first one's input and output.
#pragma once
#include "runner/models/attention_form.hpp"
#include "runner/models/models.hpp"

namespace runner {

struct Decoder {
  enum class Norm { rms, layer };
  enum class QkNorm { none, head, full };
  struct Biases {
    bool qkv, out, mlp;
  };

  int64_t n_layers, dim, n_heads, kv_heads, head_dim, hidden;
  Norm norm;
  bool norm_before, norm_after;  ///< of a branch
  QkNorm qk_norm;
  bool parallel;
  Biases biases;
  bool gated;
  int64_t rotary_dim;  ///< elements of a head that are rotated

  int64_t query_dim() const { return n_heads * head_dim; }
  int64_t key_dim() const { return kv_heads * head_dim; }
  /// The decoder with the heads and the columns of the feed-forward of the rank that has the most.
  Decoder divided(const TensorDivision& division) const;
};

/// Throws Error(usage) for values that contradict each other.
Decoder decoder_of(const Recipe::Model& model);

namespace decoder {

/// The feed-forward width: model.hidden_dim. Default: 4 * dim if it is not gated; otherwise Llama's rule: two thirds of 4
/// * dim, times ffn_dim_multiplier, rounded up to multiple_of (so that three matrices have about as many elements as two
/// of width 4 * dim).
int64_t hidden_dim(const Recipe::Model& model);
int64_t n_kv_heads(const Recipe::Model& model);
int64_t head_dim(const Recipe::Model& model);

/// Whether layer `layer` has a sliding window, as model.layer_types says.
bool slides(const Recipe::Model& model, int64_t layer);
/// Whether the layer has rotary positions.
bool rotates(const Recipe::Model& model, int64_t layer);
AttentionForm attention_form(const Recipe::Model& model, int64_t layer);
/// The factor of embeddings.
double embedding_multiplier(const Recipe::Model& model);

ModelSpec make_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len, RowKind rows,
                    const TensorDivision& division, const ContextDivision& context);
nlohmann::json settings(const Recipe::Model& model);

HfTensor hf_tensor(const Recipe::Model& model, const std::string& name);
bool hf_ignorable(const Recipe::Model& model, const std::string& name);
Recipe::Model model_from_hf_config(const nlohmann::json& config);
nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec);

}  // namespace decoder
}  // namespace runner
