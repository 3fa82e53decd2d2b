// Small [model] sections for the tests of this folder.
#pragma once
#include "runner/config/model_families.hpp"
#include "runner/models/models.hpp"

namespace runner::testing {

inline Recipe::Model gpt_recipe() {
  Recipe::Model model;
  model.name = "gpt";
  model.n_layers = 2;
  model.dim = 32;
  model.n_heads = 4;
  model.max_seq_len = 16;
  return model;
}

inline Recipe::Model llama_recipe() {
  Recipe::Model model = gpt_recipe();
  model.name = "llama";
  model.n_kv_heads = 2;
  model.hidden_dim = 88;
  model.tie_embeddings = false;
  return model;
}

/// A family with its own options, in sizes and values that show them in 16 tokens.
inline Recipe::Model family_recipe(const std::string& name) {
  Recipe::Model model = family_defaults(name);
  model.n_layers = 2;
  model.dim = 32;
  model.n_heads = 4;
  model.max_seq_len = 16;
  model.hidden_dim = 88;
  if (family_kind(name) == "encoder") return model;
  if (name != "gpt" && name != "gpt_neox") model.n_kv_heads = 2;
  if (name != "gpt" && name != "gpt_neox" && name != "phi3" && name != "olmo2") model.head_dim = 12;
  if (model.sliding_window > 0) model.sliding_window = 5;
  if (model.layer_types.size() > 2) model.layer_types = {"sliding_attention", "full_attention"};
  if (model.attention_softcap > 0) model.attention_softcap = model.logits_softcap = 2;
  if (model.no_rope_every > 0) model.no_rope_every = 2;
  if (name == "granite") {
    model.embedding_multiplier = 6;
    model.residual_multiplier = 0.4;
    model.logits_scaling = 3;
    model.attention_scale = 0.3;
  }
  return model;
}

/// A bias of keys that shifts all scores of a query equally. Its gradient is zero up to rounding.
inline bool is_key_bias_without_rotation(const Recipe::Model& model, const std::string& parameter) {
  return family_kind(model.name) == "encoder" && parameter.ends_with(".wk.bias");
}

/// Every combination of options that changes blocks or parameters.
inline std::vector<Recipe::Model> varied_recipes() {
  std::vector<Recipe::Model> all;
  for (bool tied : {false, true}) {
    for (bool bias : {false, true}) {
      auto model = gpt_recipe();
      model.tie_embeddings = tied;
      model.bias = bias;
      model.activation = bias ? "gelu" : "gelu_tanh";
      all.push_back(model);
    }
    for (int64_t kv_heads : {1, 2, 4}) {
      auto model = llama_recipe();
      model.tie_embeddings = tied;
      model.n_kv_heads = kv_heads;
      if (kv_heads == 1) model.rope_scaling = Recipe::Model::RopeScaling{8.0, 1.0, 4.0, 8};
      all.push_back(model);
    }
  }
  for (const auto& name : language_model_names())
    if (name != "gpt" && name != "llama") all.push_back(family_recipe(name));
  return all;
}

}  // namespace runner::testing
