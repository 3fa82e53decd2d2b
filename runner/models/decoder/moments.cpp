#include "runner/models/decoder/moments.hpp"

#include <algorithm>

#include "runner/models/spec_parts.hpp"

namespace runner::decoder {

Moments::Moments(const Recipe::Model& model, const Decoder& decoder, int64_t seq_len, const TensorDivision& division,
                 const ContextDivision& context)
    : model_(model),
      decoder_(decoder.divided(division)),
      division_(division),
      context_(context),
      seq_len_(seq_len),
      h_(decoder.dim, division),
      q_(static_cast<double>(decoder_.query_dim())),
      kv_(static_cast<double>(decoder_.key_dim())),
      mlp_(static_cast<double>(decoder_.hidden)) {}

double Moments::masked() const {
  return model_.dropout > 0 || model_.residual_multiplier != 1 || decoder_.norm_after ? h_.stream : 0;
}

bool Moments::fused(int64_t layer) const {
  const auto form = attention_form(model_, layer);
  // Of windows, only fp32 on CPUs has a fused kernel. Its log-sum-exp is claimed everywhere.
  return model_.dropout == 0 && form.softcap == 0;
}

ContextNumbers Moments::context(int64_t layer) const {
  const AttentionSize size{.heads = decoder_.n_heads,
                           .key_heads = decoder_.kv_heads,
                           .head_dim = decoder_.head_dim,
                           .seq_len = seq_len_,
                           .form = attention_form(model_, layer),
                           .drops = model_.dropout > 0};
  return {size, context_};
}

/// The backward of attention: queries, keys, values, result and the gradients of each, beside input and residual.
MemoryMoment Moments::attention_itself(int64_t layer) const {
  const auto form = attention_form(model_, layer);
  const double beside = input() + h_.stream + product_input() + (qk_norm() ? q_ + kv_ : 0);
  const double capped = form.softcap > 0 ? 1 : 0;
  if (const auto numbers = context(layer); numbers.keys_travel()) return numbers.backward(beside);
  if (model_.dropout > 0) {
    const auto scores = static_cast<double>(decoder_.n_heads * seq_len_);
    return dropout_attention_moment(decoder_.n_heads, seq_len_,
                                    capped * scores + division_.of_columns(h_.all) + beside + 8 * q_);
  }
  const double fused = beside + 4 * q_ + 4 * kv_;
  const bool windowed = form.window > 0 && form.window < seq_len_;
  if (form.softcap == 0 && !windowed) return {.compute_elements_per_token = fused};
  // Queries and the gradients of result and queries; keys and values, also by head; queries and rows of a tile; its scores. The sums of
  // the gradients of keys and values are in fp32.
  const auto tile = largest_tile(form.window);
  const auto tokens = static_cast<double>(seq_len_);
  const double tiled = beside + 3 * q_ + 4 * kv_ + 2 * q_ * static_cast<double>(tile.queries) / tokens +
                       (3 + capped) * static_cast<double>(decoder_.n_heads * tile.queries * tile.keys) / tokens;
  if (form.softcap > 0) return {.compute_elements_per_token = tiled, .float32_per_token = 2 * kv_};
  return {.compute_elements_per_token = fused, .tiled_per_token = tiled - fused, .tiled_float32_per_token = 2 * kv_};
}

/// The tile of queries with the most scores.
Moments::Tile Moments::largest_tile(int64_t window) const {
  Tile largest;
  for (int64_t first = 0; first < seq_len_; first += attention_tile) {
    const int64_t queries = std::min(attention_tile, seq_len_ - first), end = first + queries;
    const int64_t keys = window > 0 ? std::min(end, window + queries - 1) : end;
    if (queries * keys > largest.queries * largest.keys) largest = {queries, keys};
  }
  return largest;
}

/// The norm of a branch's result needs all that is saved, its own temporaries and the residual's gradient.
void Moments::add_norm_after(std::vector<MemoryMoment>& moments, const BlockSpec& block) const {
  if (!decoder_.norm_after) return;
  const bool own = model_.dropout > 0 || model_.residual_multiplier != 1;
  moments.push_back({.compute_elements_per_token = block.saved.compute_elements_per_token +
                                                   (layer_norm() ? 2 : 3) * h_.stream + (own ? h_.stream : 0),
                     .widened_per_token = layer_norm() ? 0 : 2.5 * h_.stream,
                     .arriving = elements_of(block.parameters, {"_post_norm.weight", "_post_norm.bias"})});
}

void Moments::add_norm_before(std::vector<MemoryMoment>& moments, const BlockSpec& block) const {
  const int64_t all = block.parameter_count();
  const int64_t norm = elements_of(
      block.parameters, {"attention_norm.weight", "attention_norm.bias", "mlp_norm.weight", "mlp_norm.bias"});
  if (decoder_.norm_before && !layer_norm())
    moments.push_back({.compute_elements_per_token = input() + h_.stream + 4 * normed_rows(),
                       .widened_per_token = 2.5 * normed_rows(),
                       .arrived = all - norm});
  moments.push_back({.compute_elements_per_token = input() + h_.stream + 2 * normed_rows(), .arrived = all});
}

std::vector<MemoryMoment> Moments::attention(const BlockSpec& block, int64_t layer) const {
  std::vector<MemoryMoment> moments;
  add_norm_after(moments, block);
  const int64_t after = elements_of(block.parameters, {"_post_norm.weight", "_post_norm.bias"});
  const int64_t wo = elements_of(block.parameters, {".wo.weight", ".wo.bias"});
  const int64_t wq = elements_of(block.parameters, {".wq.weight", ".wq.bias"});
  const int64_t q_norm = elements_of(block.parameters, {".q_norm.weight"});
  const int64_t norm = elements_of(block.parameters, {".attention_norm.weight", ".attention_norm.bias"});
  const double post = decoder_.norm_after ? h_.stream : 0;
  // The block's input, the residual's gradient, and the input of the first products with its gradient.
  const double beside = input() + h_.stream + product_input() + h_.all;
  const int64_t until_wq = block.parameter_count() - norm - wq;
  moments.push_back(
      {.compute_elements_per_token = block.saved.compute_elements_per_token - post + h_.stream + q_ + last_gradient(),
       .arrived = after,
       .arriving = wo,
       .released_per_token = last_gradient(),
       .out_features = decoder_.dim,
       .in_features = decoder_.query_dim()});
  moments.push_back(attention_itself(layer));
  moments.back().arrived = after + wo;
  if (const auto numbers = context(layer); numbers.of_heads() > 0) {
    if (model_.dropout == 0)  // key heads may be repeated
      moments.back().compute_elements_per_token += 2 * (numbers.of_heads() - q_ - 2 * kv_);
    moments.push_back(numbers.backward_exchange(beside - h_.all + (qk_norm() ? q_ + kv_ : 0)));
    moments.back().arrived = after + wo;
  }
  // What keys and values have added to the gradient of the products' input; saved queries, their gradient, and the norm's temporaries.
  if (qk_norm())
    moments.push_back({.compute_elements_per_token = beside + 4 * q_,
                       .widened_per_token = 2.5 * q_,
                       .arrived = until_wq - q_norm,
                       .arriving = q_norm});
  moments.push_back({.compute_elements_per_token = beside + h_.all + q_,
                     .arrived = until_wq,
                     .arriving = wq,
                     .out_features = decoder_.query_dim(),
                     .in_features = decoder_.dim});
  add_norm_before(moments, block);
  return moments;
}

std::vector<MemoryMoment> Moments::mlp(const BlockSpec& block) const {
  std::vector<MemoryMoment> moments;
  add_norm_after(moments, block);
  const int64_t after = elements_of(block.parameters, {"_post_norm.weight", "_post_norm.bias"});
  const int64_t w1 = elements_of(block.parameters, {".w1.weight", ".w1.bias"});
  const int64_t w2 = elements_of(block.parameters, {".w2.weight", ".w2.bias"});
  const int64_t w3 = elements_of(block.parameters, {".w3.weight", ".w3.bias"});
  const double saved = block.saved.compute_elements_per_token - (decoder_.norm_after ? h_.stream : 0);
  moments.push_back({.compute_elements_per_token = saved + h_.stream + last_gradient() + mlp_,
                     .arrived = after,
                     .arriving = w2,
                     .released_per_token = mlp_ + last_gradient(),
                     .out_features = decoder_.dim,
                     .in_features = decoder_.hidden});
  if (decoder_.gated) {
    moments.push_back({.compute_elements_per_token = saved + h_.stream + 2 * mlp_, .arrived = after + w2});
    moments.push_back({.compute_elements_per_token = saved - mlp_ + h_.stream + h_.all,
                       .arrived = after + w2,
                       .arriving = w3,
                       .released_per_token = mlp_,
                       .out_features = decoder_.hidden,
                       .in_features = decoder_.dim});
    moments.push_back({.compute_elements_per_token = saved - 2 * mlp_ + h_.stream + h_.all,
                       .arrived = after + w2 + w3,
                       .arriving = w1,
                       .released_per_token = mlp_ + h_.all,
                       .out_features = decoder_.hidden,
                       .in_features = decoder_.dim});
  } else {
    moments.push_back({.compute_elements_per_token = saved + h_.stream + mlp_, .arrived = after + w2});
    moments.push_back({.compute_elements_per_token = saved - mlp_ + h_.stream + h_.all,
                       .arrived = after + w2,
                       .arriving = w1,
                       .released_per_token = mlp_ + h_.all,
                       .out_features = decoder_.hidden,
                       .in_features = decoder_.dim});
  }
  add_norm_before(moments, block);
  return moments;
}

std::vector<MemoryMoment> Moments::parallel(const BlockSpec& attention, const BlockSpec& mlp) const {
  std::vector<MemoryMoment> moments;
  const double waiting = attention.saved.compute_elements_per_token - input();  // without the shared input
  // Without dropout both branches have one gradient of all rows, which the attention reads after the feed-forward.
  const double shared = model_.dropout > 0 ? 0 : h_.gathered();
  for (auto moment : mlp.backward_moments) {
    moment.compute_elements_per_token += waiting + (moments.empty() ? 0 : shared);
    if (moments.empty()) moment.released_per_token -= shared;
    moments.push_back(moment);
  }
  // On one rank the gradient of the input that the feed-forward computes is added to the residual's. If ranks divide the matrices, it is of
  // all rows, and a tensor of its own.
  for (auto moment : attention.backward_moments) {
    if (division_.divides()) moment.compute_elements_per_token += h_.all;
    moment.arrived += mlp.parameter_count();
    moments.push_back(moment);
  }
  return moments;
}

/// Queries, copies of keys and values by head, and the result; queries of a tile, and its scores and probabilities. One head needs no
/// copies.
void Moments::add_tiled_attention(MomentsWithoutGraph& moments, double beside, const ContextNumbers& numbers,
                                  const AttentionForm& form) const {
  const auto tile = largest_tile(form.window);
  const double of_tile = static_cast<double>(tile.queries) / static_cast<double>(seq_len_);
  const double sent = numbers.of_heads() > 0 ? numbers.of_heads() - q_ : 2 * kv_;
  const double copies = numbers.attended_key_heads() > 1 ? sent : 0;
  const double queries = numbers.attended_heads() > 1 ? q_ * of_tile : 0;
  const double tiled = copies + queries + 2 * static_cast<double>(decoder_.n_heads * tile.keys) * of_tile;
  if (form.softcap > 0)
    moments.add_without_dropout({.compute_elements_per_token = beside + q_ + tiled});
  else
    moments.add_without_dropout({.compute_elements_per_token = beside + q_, .tiled_per_token = tiled});
}

/// Without dropout, the products of parallel branches are summed over the ranks when both exist, and less else.
void Moments::add_leave(MomentsWithoutGraph& moments, double beside) const {
  if (!decoder_.parallel || model_.dropout > 0) moments.add_leave(beside, h_.all);
}

void Moments::add_norm_before(MomentsWithoutGraph& moments) const {
  if (!decoder_.norm_before || layer_norm()) return;
  moments.add_rms_norm(input(), normed_rows(), decoder_.parallel ? 1 : division_.of_rows(1));
}

void Moments::add_end(MomentsWithoutGraph& moments, double beside) const {
  moments.add_dropout(beside, h_.stream);
  if (!decoder_.norm_after) return;
  layer_norm() ? moments.add(beside + h_.stream) : moments.add_rms_norm(beside, h_.stream, division_.of_rows(1));
}

std::vector<MemoryMoment> Moments::attention_without_graph(int64_t layer, bool packed) const {
  MomentsWithoutGraph moments(model_, seq_len_, division_);
  const auto form = attention_form(model_, layer);
  const bool windowed = form.window > 0 && form.window < seq_len_;
  const double x = input() + product_input();
  // If tokens have positions, cos and sin of each.
  const double rotated = packed || context_.divides() ? static_cast<double>(decoder_.rotary_dim) : 0;
  const auto project = [&](double beside, int64_t heads) {
    const int64_t out = heads * decoder_.head_dim;
    const auto size = static_cast<double>(out);
    const bool by_head = decoder_.qk_norm == Decoder::QkNorm::head;
    moments.add_product(beside, out, decoder_.dim);
    if (qk_norm()) moments.add_rms_norm(beside + size, size, by_head ? static_cast<double>(heads) : 1);
    moments.add(beside + size * (qk_norm() ? 3 : 2) + rotated);
  };
  add_norm_before(moments);
  project(x, decoder_.n_heads);
  project(x + q_, decoder_.kv_heads);
  moments.add_product(x + q_ + kv_, decoder_.key_dim(), decoder_.dim);
  const double inputs = x + q_ + 2 * kv_;
  if (const auto numbers = context(layer); numbers.keys_travel()) {
    moments.add(numbers.forward(x));
  } else {
    if (numbers.of_heads() > 0) moments.add(numbers.forward_exchanges(x));
    const double beside = inputs + numbers.of_heads();
    if (form.softcap == 0) moments.add_fused_attention(beside, q_, packed);
    if (form.softcap > 0 || windowed) add_tiled_attention(moments, beside, numbers, form);
    moments.add_dropout_attention(beside, q_, /*repeats=*/numbers.attended_heads() > numbers.attended_key_heads());
  }
  moments.add_product(inputs + q_, decoder_.dim, decoder_.query_dim());
  add_leave(moments, inputs + q_);
  add_end(moments, inputs + q_ + h_.stream);
  return moments.list;
}

std::vector<MemoryMoment> Moments::mlp_without_graph() const {
  MomentsWithoutGraph moments(model_, seq_len_, division_);
  const double x = input() + product_input();
  add_norm_before(moments);
  moments.add_product(x, decoder_.hidden, decoder_.dim);
  if (decoder_.gated) moments.add_product(x + mlp_, decoder_.hidden, decoder_.dim);
  moments.add(x + (decoder_.gated ? 3 : 2) * mlp_);
  moments.add_product(x + mlp_, decoder_.dim, decoder_.hidden);
  add_leave(moments, x + mlp_);
  add_end(moments, x + mlp_ + h_.stream);
  return moments.list;
}

std::vector<MemoryMoment> Moments::parallel_without_graph(const BlockSpec& attention, const BlockSpec& mlp) const {
  auto moments = attention.moments_without_graph;
  const auto add = [&](MemoryMoment moment, double result) {
    moment.compute_elements_per_token += result;
    moments.push_back(moment);
  };
  const bool drops = model_.dropout > 0;
  for (const auto& moment : mlp.moments_without_graph) {
    if (!drops || !h_.gathers) {
      add(moment, h_.all);
      continue;
    }
    // With dropout the first result has been summed over the ranks.
    auto trains = moment, validates = moment;
    trains.trains = true;
    validates.trains = false;
    if (moment.trains.value_or(true)) add(trains, h_.stream);
    if (!moment.trains.value_or(false)) add(validates, h_.all);
  }
  return moments;
}

void add_softcap(BlockSpec& head, int64_t vocab_size) {
  const auto vocab = static_cast<double>(vocab_size);
  // The hyperbolic tangents of a chunk's logits are kept for the gradient.
  head.forward_moments[0].compute_elements_per_chunk_token += vocab;
  auto overwriting = head.forward_moments[0];
  overwriting.compute_elements_per_chunk_token = 2 * vocab;
  overwriting.float32_per_chunk_token = 0;
  head.forward_moments.insert(head.forward_moments.begin() + 1, overwriting);
}

}  // namespace runner::decoder
