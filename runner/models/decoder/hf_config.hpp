// Parts of the conversion between [model] and config.json of decoders: Hugging Face's configuration classes, with names, defaults of absent
// keys, and which keys each class has; rotary positions; and windows.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/models/decoder/decoder.hpp"
#include "runner/models/hf_config_reader.hpp"

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
};

const std::vector<HfFamily>& hf_families();
/// The family of model.name.
const HfFamily& hf_family(const std::string& name);

/// rope_theta, partial_rotary_factor, rope_local_theta and rope_scaling of a model whose name, defaults and max_seq_len
/// are set. Throws Error(usage).
void read_rope(const HfConfigReader& config, Recipe::Model& model);
void write_rope(const Recipe::Model& model, nlohmann::json& config);

/// sliding_window and layer_types. n_layers is set.
void read_windows(const HfConfigReader& config, const HfFamily& family, Recipe::Model& model);
void write_windows(const Recipe::Model& model, const HfFamily& family, nlohmann::json& config);

}  // namespace runner::decoder
