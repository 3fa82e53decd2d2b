#include "runner/models/decoder/decoder.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/decoder/rope.hpp"

namespace runner {

namespace {

/// The place of `value` in `allowed`. Throws Error(usage) if it is not there.
int index_of(const char* key, const std::string& value, const std::vector<std::string>& allowed) {
  const auto found = std::ranges::find(allowed, value);
  if (found == allowed.end()) throw usage_error("model.{} = \"{}\": allowed: {}", key, value, join_or(allowed));
  return static_cast<int>(found - allowed.begin());
}

void check_heads(const Recipe::Model& model, int64_t rotary_dim) {
  const int64_t kv_heads = decoder::n_kv_heads(model);
  if (kv_heads < 1 || model.n_heads % kv_heads != 0)
    throw usage_error("model.n_kv_heads = {}: must divide model.n_heads = {}", kv_heads, model.n_heads);
  if (rotary_dim % 2 == 0 && rotary_dim > 0) return;
  if (model.partial_rotary_factor != 1)
    throw usage_error("model.partial_rotary_factor = {}: rotates {} elements of a head of {}; must be an even number",
                      model.partial_rotary_factor, rotary_dim, decoder::head_dim(model));
  if (model.head_dim)
    throw usage_error("model.head_dim = {}: rotary positions need an even head size", *model.head_dim);
  throw usage_error("model.n_heads = {}: rotary positions need an even head size, not model.dim / model.n_heads = {}",
                    model.n_heads, model.dim / model.n_heads);
}

void check_numbers(const Recipe::Model& model) {
  if (!model.hidden_dim && model.multiple_of < 1)
    throw usage_error("model.multiple_of = {}: must be at least 1", model.multiple_of);
  auto at_least_0 = [](const char* key, auto value) {
    if (!(value >= 0)) throw usage_error("model.{} = {}: must be at least 0", key, value);
  };
  at_least_0("attention_softcap", model.attention_softcap);
  at_least_0("logits_softcap", model.logits_softcap);
  at_least_0("sliding_window", model.sliding_window);
  at_least_0("no_rope_every", model.no_rope_every);
  if (!(model.logits_scaling > 0))
    throw usage_error("model.logits_scaling = {}: must be above 0", model.logits_scaling);
  for (const auto& type : model.layer_types) index_of("layer_types", type, {"sliding_attention", "full_attention"});
}

}  // namespace

Decoder decoder_of(const Recipe::Model& model) {
  Decoder decoder{};
  decoder.n_layers = model.n_layers;
  decoder.dim = model.dim;
  decoder.n_heads = model.n_heads;
  decoder.kv_heads = decoder::n_kv_heads(model);
  decoder.head_dim = decoder::head_dim(model);
  decoder.hidden = decoder::hidden_dim(model);
  decoder.norm = static_cast<Decoder::Norm>(index_of("norm", model.norm, {"rms", "layer"}));
  const int place = index_of("norm_place", model.norm_place, {"pre", "post", "both"});
  decoder.norm_before = place != 1;
  decoder.norm_after = place != 0;
  decoder.qk_norm = static_cast<Decoder::QkNorm>(index_of("qk_norm", model.qk_norm, {"none", "head", "full"}));
  decoder.parallel = model.parallel_residual;
  const int biases = index_of("attention_bias", model.attention_bias, {"none", "qkv", "all"});
  decoder.biases = {.qkv = biases > 0, .out = biases > 1, .mlp = model.mlp_bias};
  decoder.gated = model.gated_mlp;
  decoder.rotary_dim = static_cast<int64_t>(model.partial_rotary_factor * static_cast<double>(decoder.head_dim));
  index_of("activation", activation_of(model), {"silu", "gelu", "gelu_tanh", "relu"});
  check_heads(model, decoder.rotary_dim);
  check_numbers(model);
  if (model.norm_offset && decoder.norm == Decoder::Norm::layer)
    throw usage_error("model.norm_offset = true: only for model.norm = \"rms\"");
  if (decoder.parallel && (!decoder.norm_before || decoder.norm_after))
    throw usage_error("model.parallel_residual = true: needs model.norm_place = \"pre\", not \"{}\"", model.norm_place);
  decoder::check_rope(model, decoder.rotary_dim);
  return decoder;
}

Decoder Decoder::divided(const TensorDivision& division) const {
  Decoder part = *this;
  part.n_heads = division.most(n_heads);
  part.kv_heads = division.most(kv_heads);
  part.hidden = division.most(hidden);
  return part;
}

namespace decoder {

int64_t hidden_dim(const Recipe::Model& model) {
  if (model.hidden_dim) return *model.hidden_dim;
  if (!model.gated_mlp) return 4 * model.dim;
  int64_t hidden = 2 * (4 * model.dim) / 3;
  if (model.ffn_dim_multiplier) hidden = static_cast<int64_t>(*model.ffn_dim_multiplier * static_cast<double>(hidden));
  const int64_t unit = std::max<int64_t>(1, model.multiple_of);
  return (hidden + unit - 1) / unit * unit;
}

int64_t n_kv_heads(const Recipe::Model& model) { return model.n_kv_heads.value_or(model.n_heads); }

int64_t head_dim(const Recipe::Model& model) { return model.head_dim.value_or(model.dim / model.n_heads); }

bool slides(const Recipe::Model& model, int64_t layer) {
  if (model.layer_types.empty()) return model.sliding_window > 0;
  return model.layer_types[static_cast<size_t>(layer) % model.layer_types.size()] == "sliding_attention";
}

bool rotates(const Recipe::Model& model, int64_t layer) {
  return model.no_rope_every == 0 || (layer + 1) % model.no_rope_every != 0;
}

AttentionForm attention_form(const Recipe::Model& model, int64_t layer) {
  return {.scale = model.attention_scale,
          .window = slides(model, layer) ? model.sliding_window : 0,
          .softcap = model.attention_softcap};
}

double embedding_multiplier(const Recipe::Model& model) {
  return model.embedding_multiplier.value_or(scales_embeddings(model.name) ? std::sqrt(static_cast<double>(model.dim))
                                                                           : 1.0);
}

}  // namespace decoder
}  // namespace runner
