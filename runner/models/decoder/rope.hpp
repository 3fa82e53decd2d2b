// Frequencies of rotary positions, with every scaling that published models use. Torch-free.
#pragma once
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner::decoder {

/// The rotary positions of a layer.
struct RopeFrequencies {
  /// Angle per position of each of the rotary_dim / 2 rotated pairs.
  std::vector<double> angles;
  /// For sequences longer than `longer_than` tokens (longrope); empty: the same.
  std::vector<double> long_angles = {};
  int64_t longer_than = 0;
  double factor = 1;  ///< of cos and sin
};

/// theta^(-2i / rotary_dim) (Su et al. 2021, "RoFormer"), scaled as model.rope_scaling says:
/// linear: divided by `factor` (Chen et al. 2023, arXiv:2306.15595).
/// llama3: frequencies of wavelengths above original_max_position_embeddings / low_freq_factor are divided by `factor`,
/// those of wavelengths below original_max_position_embeddings / high_freq_factor are unchanged, and the others are
/// interpolated (Llama 3.1).
/// yarn: the same with a ramp between the pairs that turn beta_slow and beta_fast times; cos and sin are multiplied by
/// attention_factor, default 0.1 ln(factor) + 1 (Peng et al. 2023, arXiv:2309.00071).
/// longrope: divided by short_factor, or by long_factor for sequences longer than original_max_position_embeddings; cos
/// and sin are multiplied by attention_factor, default sqrt(1 + ln(f) / ln(original)) with f = max_seq_len / original
/// (Ding et al. 2024, arXiv:2402.13753).
/// `local`: of windowed layers if model.rope_local_theta is set, which are not scaled.
RopeFrequencies rope_frequencies(const Recipe::Model& model, bool local = false);

/// Throws Error(usage) for a rope_scaling that cannot be used.
void check_rope(const Recipe::Model& model, int64_t rotary_dim);

}  // namespace runner::decoder
