// Small models whose parameters have values that every dtype represents exactly.
#pragma once
#include <vector>

#include "runner/checkpoint/hf.hpp"

namespace runner::testing {

inline Recipe::Model tiny_gpt() {
  Recipe::Model model;
  model.name = "gpt";
  model.n_layers = 2;
  model.dim = 24;
  model.n_heads = 3;
  model.max_seq_len = 16;
  model.activation = "gelu_tanh";
  return model;
}

inline Recipe::Model tiny_llama() {
  Recipe::Model model;
  model.name = "llama";
  model.n_layers = 2;
  model.dim = 32;
  model.n_heads = 4;
  model.n_kv_heads = 2;
  model.hidden_dim = 48;
  model.max_seq_len = 64;
  model.tie_embeddings = false;
  model.norm_eps = 1e-6;
  model.rope_theta = 500000;
  model.rope_scaling = Recipe::Model::RopeScaling{8, 1, 4, 32};
  return model;
}

constexpr int64_t tiny_vocab = 50;

/// A multiple of 1/256 in [-0.5, 0.5) for each element of each parameter.
inline float parameter_value(size_t slot, int64_t element) {
  return static_cast<float>((static_cast<int64_t>(slot) * 37 + element * 101 + element / 256) % 256) / 256.0f - 0.5f;
}

inline void parameter_values(size_t slot, int64_t offset, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = parameter_value(slot, offset + static_cast<int64_t>(i));
}

/// The number of elements of all parameters that differ from parameter_value.
inline int64_t wrong_values(const HfSource& source, const ModelSpec& spec) {
  int64_t wrong = 0;
  auto parameters = spec.parameters();
  for (size_t slot = 0; slot < parameters.size(); ++slot) {
    std::vector<float> values(static_cast<size_t>(parameters[slot]->numel()));
    source.read(slot, 0, values);
    for (size_t i = 0; i < values.size(); ++i) wrong += values[i] != parameter_value(slot, static_cast<int64_t>(i));
  }
  return wrong;
}

}  // namespace runner::testing
