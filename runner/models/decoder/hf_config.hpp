// Parts of the conversion between [model] and config.json of decoders.
#pragma once
#include "runner/models/decoder/decoder.hpp"
#include "runner/models/decoder/hf_families.hpp"
#include "runner/models/hf_config_reader.hpp"

namespace runner::decoder {

/// rope_theta, partial_rotary_factor, rope_local_theta and rope_scaling of a model whose name, defaults and max_seq_len
/// are set. Throws Error(usage).
void read_rope(const HfConfigReader& config, Recipe::Model& model);
void write_rope(const Recipe::Model& model, nlohmann::json& config);

/// sliding_window and layer_types. n_layers is set.
void read_windows(const HfConfigReader& config, const HfFamily& family, Recipe::Model& model);
void write_windows(const Recipe::Model& model, const HfFamily& family, nlohmann::json& config);

}  // namespace runner::decoder
