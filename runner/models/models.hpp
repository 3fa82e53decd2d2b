// The model families by name: from `[model]` to a torch-free spec. module.hpp builds the module from the same spec.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

/// The names `model.name` may have.
std::vector<std::string> model_families();

/// Blocks "embedding", "blocks.0" ... "blocks.N-1", "head"; FLOPs and saved activations at sequence length `seq_len`.
/// `vocab_size` is model.vocab_size, or the tokenizer's where the recipe leaves it unset.
/// Throws Error(usage) where values contradict (config has already checked what it can).
///
/// FLOPs count matrix products only, a multiply-add as 2, and attention over the full T x T scores without a discount
/// for the causal half: what PyTorch's FlopCounterMode counts. Saved activations are what autograd keeps between
/// forward and backward of the module, the block's own input included (its predecessor's output is that same tensor);
/// tests/models measures them. Not per token and so not in it: under autocast a block also keeps its weights in the
/// compute dtype, and the head keeps the gradient of its weight from its forward on.
ModelSpec make_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len);

/// How a parameter is called and laid out in a Hugging Face checkpoint of the family.
struct HfTensor {
  std::string name;   ///< e.g. "transformer.h.0.attn.c_attn.weight"; what export writes
  std::string alias;  ///< the name in a checkpoint of the bare model, without "transformer." or "model."; empty: none
  bool transposed = false;  ///< GPT-2's Conv1D keeps [in, out]
};
/// One per spec.parameters(), in that order.
std::vector<HfTensor> hf_names(const Recipe::Model& model, const ModelSpec& spec);
/// Names that a Hugging Face folder may carry and that hold no parameter (buffers, the tied head).
bool hf_ignorable(const Recipe::Model& model, const std::string& tensor_name);
/// config.json <-> [model]. Throws Error(usage) for an architecture or option that the other side does not have.
Recipe::Model model_from_hf_config(const nlohmann::json& config);
nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec);

}  // namespace runner
