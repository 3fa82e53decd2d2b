// The torch-free part of the llama family: its spec, rotary frequencies and Hugging Face format (LlamaForCausalLM).
#pragma once
#include "runner/models/models.hpp"

namespace runner::llama {

/// The feed-forward width: model.hidden_dim, or Llama's rule: two thirds of 4 * dim, times ffn_dim_multiplier, rounded
/// up to multiple_of (so that three matrices have about as many elements as two of width 4 * dim).
int64_t hidden_dim(const Recipe::Model& model);
int64_t n_kv_heads(const Recipe::Model& model);
ModelSpec make_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len);
nlohmann::json settings(const Recipe::Model& model);

/// Angle per position of each of the head_dim / 2 rotated pairs: theta^(-2i / head_dim) (Su et al. 2021, "RoFormer").
/// With rope_scaling, Llama 3.1's rule applies: the frequencies of wavelengths above original_max_position_embeddings /
/// low_freq_factor are divided by `factor`, those of wavelengths below original_max_position_embeddings /
/// high_freq_factor are unchanged, and the others are interpolated.
std::vector<double> rope_frequencies(const Recipe::Model& model);

HfTensor hf_tensor(const std::string& name);
bool hf_ignorable(const std::string& name);
Recipe::Model model_from_hf_config(const nlohmann::json& config);
nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec);

}  // namespace runner::llama
