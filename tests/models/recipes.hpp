// Small [model] sections for the tests of this folder.
#pragma once
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
  return all;
}

}  // namespace runner::testing
