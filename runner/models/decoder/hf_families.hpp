// Hugging Face's configuration classes of decoders: names, defaults of absent keys, and which keys each class has.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner::decoder {

/// How a class says which layers have a sliding window.
enum class HfWindow {
  none,
  every_layer,  ///< sliding_window; null: none
  from_layer,   ///< use_sliding_window, sliding_window, max_window_layers, layer_types
  pattern,      ///< sliding_window, layer_types or sliding_window_pattern
  only_types,   ///< use_sliding_window, sliding_window, layer_types
};

struct HfFamily {
  std::string name;          ///< model.name
  std::string type;          ///< model_type
  std::string architecture;  ///< class of the model
  // Values of absent keys.
  int64_t max_positions;
  int64_t kv_heads;  ///< 0: as many as heads
  int64_t head_dim;  ///< 0: hidden_size / num_attention_heads
  double eps;
  double theta;
  bool tied;
  // Keys.
  bool attention_bias, mlp_bias;  ///< has such a key
  HfWindow window;
  int64_t sliding_window;  ///< value of an absent key
  std::vector<std::string> own_keys;
};

const std::vector<HfFamily>& hf_families();
/// The family of model.name.
const HfFamily& hf_family(const std::string& name);

}  // namespace runner::decoder
