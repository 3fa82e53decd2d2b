// Llama (Touvron et al. 2023): rotary positions, RMSNorm, SwiGLU feed-forward, grouped-query attention, no biases.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "runner/base/error.hpp"
#include "runner/models/family.hpp"
#include "runner/models/llama/llama.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner::llama {

namespace {

void check_llama(const Recipe::Model& model) {
  if (n_kv_heads(model) < 1 || model.n_heads % n_kv_heads(model) != 0)
    throw usage_error("model.n_kv_heads = {}: must divide model.n_heads = {}", n_kv_heads(model), model.n_heads);
  if (model.dim / model.n_heads % 2 != 0)
    throw usage_error("model.n_heads = {}: rotary positions need an even head size, not model.dim / model.n_heads = {}",
                      model.n_heads, model.dim / model.n_heads);
  if (!(model.rope_theta > 0)) throw usage_error("model.rope_theta = {}: must be above 0", model.rope_theta);
  if (!model.hidden_dim && model.multiple_of < 1)
    throw usage_error("model.multiple_of = {}: must be at least 1", model.multiple_of);
  if (const auto& scaling = model.rope_scaling) {
    if (!(scaling->factor >= 1))
      throw usage_error("model.rope_scaling.factor = {}: must be at least 1", scaling->factor);
    if (!(scaling->low_freq_factor > 0 && scaling->high_freq_factor > scaling->low_freq_factor))
      throw usage_error(
          "model.rope_scaling.high_freq_factor = {}: must be above low_freq_factor = {}, and that above 0",
          scaling->high_freq_factor, scaling->low_freq_factor);
  }
}

/// The last two moments of a block's backward: its norm, and its end. `norm`: elements of the norm's weight.
void add_norm_moments(BlockSpec& block, double d, int64_t norm) {
  const int64_t all = block.parameter_count();
  block.backward_moments.push_back(
      {.compute_elements_per_token = 6 * d, .widened_per_token = 2.5 * d, .arrived = all - norm});
  block.backward_moments.push_back({.compute_elements_per_token = 4 * d, .arrived = all});
}

/// Moments of high memory use in backward, in order: output projection, attention, query projection, norm.
void add_attention_moments(BlockSpec& block, const Recipe::Model& model, int64_t seq_len) {
  const auto d = static_cast<double>(model.dim), saved = block.saved.compute_elements_per_token;
  const double kv = d * static_cast<double>(n_kv_heads(model)) / static_cast<double>(model.n_heads);
  const double masked = masked_elements(model);
  const int64_t wo = elements_of(block.parameters, {".wo.weight"}), wq = elements_of(block.parameters, {".wq.weight"}),
                norm = elements_of(block.parameters, {".attention_norm.weight"});
  auto attention = model.dropout > 0 ? dropout_attention_moment(model, seq_len)
                                     : MemoryMoment{.compute_elements_per_token = 7 * d + 4 * kv};
  attention.arrived = wo;
  block.backward_moments = {{.compute_elements_per_token = saved + 2 * d + masked,
                             .arriving = wo,
                             .released_per_token = masked,
                             .out_features = model.dim,
                             .in_features = model.dim},
                            attention,
                            {.compute_elements_per_token = 6 * d,
                             .arrived = block.parameter_count() - norm - wq,
                             .arriving = wq,
                             .out_features = model.dim,
                             .in_features = model.dim}};
  add_norm_moments(block, d, norm);
}

BlockSpec attention_block(const Recipe::Model& model, const std::string& layer, int64_t seq_len) {
  BlockSpec block{.name = layer + ".attention", .layer = layer};
  const int64_t dim = model.dim, kv_dim = dim / model.n_heads * n_kv_heads(model);
  block.parameters = {
      vector_parameter(layer + ".attention_norm.weight", dim, Init::Kind::ones),
      matrix_parameter(layer + ".attention.wq.weight", dim, dim, model.init_std, 0),
      matrix_parameter(layer + ".attention.wk.weight", kv_dim, dim, model.init_std, 0),
      matrix_parameter(layer + ".attention.wv.weight", kv_dim, dim, model.init_std, 0),
      matrix_parameter(layer + ".attention.wo.weight", dim, dim, residual_std(model), 1),
  };
  block.forward_flops_per_token = matrix_flops_per_token(block.parameters) + attention_flops_per_token(dim, seq_len);
  // Block input, normed input, rotated q and k, v, attention output. Attention with dropout saves k and v repeated for every query
  // head, and no log-sum-exp.
  const bool dropout = model.dropout > 0;
  block.saved.compute_elements_per_token = static_cast<double>(4 * dim + 2 * (dropout ? dim : kv_dim));
  if (!dropout) block.saved.repeated_in_fp32_per_token = static_cast<double>(2 * (dim - kv_dim));
  block.saved.float32_per_token = 1 + (dropout ? 0.0 : static_cast<double>(model.n_heads));
  block.output_elements_per_token = static_cast<double>(dim);
  add_attention_moments(block, model, seq_len);
  return block;
}

/// Moments of high memory use in backward, in order: the three projections, norm.
void add_mlp_moments(BlockSpec& block, const Recipe::Model& model) {
  const int64_t dim = model.dim, hidden = hidden_dim(model);
  const auto d = static_cast<double>(dim), h = static_cast<double>(hidden),
             saved = block.saved.compute_elements_per_token;
  const double masked = masked_elements(model);
  const int64_t w2 = elements_of(block.parameters, {".w2.weight"}), w3 = elements_of(block.parameters, {".w3.weight"}),
                w1 = elements_of(block.parameters, {".w1.weight"});
  block.backward_moments = {{.compute_elements_per_token = saved + d + masked + h,
                             .arriving = w2,
                             .released_per_token = h + masked,
                             .out_features = dim,
                             .in_features = hidden},
                            {.compute_elements_per_token = saved + d + 2 * h, .arrived = w2},
                            {.compute_elements_per_token = saved - h + 2 * d,
                             .arrived = w2,
                             .arriving = w3,
                             .released_per_token = h,
                             .out_features = hidden,
                             .in_features = dim},
                            {.compute_elements_per_token = saved - 2 * h + 2 * d,
                             .arrived = w2 + w3,
                             .arriving = w1,
                             .released_per_token = h + d,
                             .out_features = hidden,
                             .in_features = dim}};
  add_norm_moments(block, d, block.parameter_count() - w1 - w2 - w3);
}

BlockSpec mlp_block(const Recipe::Model& model, const std::string& layer) {
  BlockSpec block{.name = layer + ".mlp", .layer = layer};
  const int64_t dim = model.dim, hidden = hidden_dim(model);
  block.parameters = {
      vector_parameter(layer + ".mlp_norm.weight", dim, Init::Kind::ones),
      matrix_parameter(layer + ".mlp.w1.weight", hidden, dim, model.init_std, 0),
      matrix_parameter(layer + ".mlp.w3.weight", hidden, dim, model.init_std, 0),
      matrix_parameter(layer + ".mlp.w2.weight", dim, hidden, residual_std(model), 1),
  };
  block.forward_flops_per_token = matrix_flops_per_token(block.parameters);
  // Block input, its norm, gate, up and their product.
  block.saved.compute_elements_per_token = static_cast<double>(2 * dim + 3 * hidden);
  block.saved.float32_per_token = 1;  // the norm's statistic
  block.output_elements_per_token = static_cast<double>(dim);
  add_mlp_moments(block, model);
  return block;
}

}  // namespace

int64_t hidden_dim(const Recipe::Model& model) {
  if (model.hidden_dim) return *model.hidden_dim;
  int64_t hidden = 2 * (4 * model.dim) / 3;
  if (model.ffn_dim_multiplier) hidden = static_cast<int64_t>(*model.ffn_dim_multiplier * static_cast<double>(hidden));
  return (hidden + model.multiple_of - 1) / model.multiple_of * model.multiple_of;
}

int64_t n_kv_heads(const Recipe::Model& model) { return model.n_kv_heads.value_or(model.n_heads); }

ModelSpec make_spec(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len) {
  check_llama(model);
  ModelSpec spec;
  spec.batch = token_fields(seq_len);
  spec.blocks.push_back(
      embedding_block(model, {matrix_parameter("embedding.tokens.weight", vocab_size, model.dim, model.init_std, 0)}));
  spec.buffer_elements = model.max_seq_len * (model.dim / model.n_heads);  // cos and sin tables
  for (int64_t i = 0; i < model.n_layers; ++i) {
    const auto layer = fmt::format("blocks.{}", i);
    spec.blocks.push_back(attention_block(model, layer, seq_len));
    spec.blocks.push_back(mlp_block(model, layer));
  }
  spec.blocks.push_back(head_block(model, {vector_parameter("head.norm.weight", model.dim, Init::Kind::ones)},
                                   vocab_size, {.saved_float32 = 1, .widened = 2.0 * static_cast<double>(model.dim)}));
  return spec;
}

nlohmann::json settings(const Recipe::Model& model) {
  nlohmann::json scaling;
  if (const auto& rope = model.rope_scaling)
    scaling = {{"factor", rope->factor},
               {"low_freq_factor", rope->low_freq_factor},
               {"high_freq_factor", rope->high_freq_factor},
               {"original_max_position_embeddings", rope->original_max_position_embeddings}};
  return {{"n_kv_heads", n_kv_heads(model)},
          {"hidden_dim", hidden_dim(model)},
          {"rope_theta", model.rope_theta},
          {"rope_scaling", scaling}};
}

std::vector<double> rope_frequencies(const Recipe::Model& model) {
  int64_t head_dim = model.dim / model.n_heads;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    double frequency = std::pow(model.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (const auto& scaling = model.rope_scaling) {
      double wavelength = 2 * std::numbers::pi / frequency;
      double turns = static_cast<double>(scaling->original_max_position_embeddings) / wavelength;
      double kept = (turns - scaling->low_freq_factor) / (scaling->high_freq_factor - scaling->low_freq_factor);
      kept = std::clamp(kept, 0.0, 1.0);
      frequency = (1 - kept) * frequency / scaling->factor + kept * frequency;
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace runner::llama

namespace runner {

const Family llama_family = {"llama",
                             "llama",
                             llama::make_spec,
                             llama::settings,
                             llama::hf_tensor,
                             llama::hf_ignorable,
                             llama::model_from_hf_config,
                             llama::hf_config};

}  // namespace runner
