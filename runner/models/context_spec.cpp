#include "runner/models/context_spec.hpp"

#include <algorithm>
#include <numeric>

namespace runner {

ContextNumbers::ContextNumbers(const AttentionSize& size, const ContextDivision& context)
    : size_(size),
      context_(context),
      ranks_(context.ranks),
      q_(static_cast<double>(size.heads * size.head_dim)),
      kv_(2 * static_cast<double>(size.key_heads * size.head_dim)),
      heads_(static_cast<double>(size.heads)),
      sent_kv_(2 * static_cast<double>(std::lcm(size.key_heads, int64_t{context.ranks}) * size.head_dim)) {}

int64_t ContextNumbers::attended_key_heads() const {
  return of_heads() > 0 ? std::lcm(size_.key_heads, int64_t{context_.ranks}) / context_.ranks : size_.key_heads;
}

void ContextNumbers::add_traffic(BlockSpec& block) const {
  auto& [forward, backward] = block.over_context_axis;
  if (context_.form == ContextForm::ulysses) {
    const BlockCollective inputs{.kind = Collective::all_to_all, .elements_per_token = q_ + sent_kv_},
        result{.kind = Collective::all_to_all, .elements_per_token = q_};
    forward = {inputs, result};
    backward = {result, inputs};
    return;
  }
  if (gathers()) {
    const BlockCollective keys{.kind = Collective::all_gather, .elements_per_token = kv_ * ranks_},
        gradients{.kind = Collective::reduce_scatter, .elements_per_token = kv_ * ranks_};
    forward = {keys};
    backward = {keys, gradients};
    return;
  }
  const BlockCollective keys{.kind = Collective::transfer, .elements_per_token = kv_},
      gradients{.kind = Collective::transfer, .elements_per_token = kv_, .values = BlockCollective::Values::statistics};
  for (int hop = 1; hop < context_.ranks; ++hop) {
    forward.push_back(keys);
    backward.insert(backward.end(), {keys, gradients});
  }
  backward.push_back(gradients);
}

void ContextNumbers::change(BlockSpec& block) const {
  if (!context_.divides()) return;
  add_traffic(block);
  auto& saved = block.saved;
  const bool capped = size_.form.softcap > 0;
  if (keys_travel()) {  // queries, keys, values, the result and a log-sum-exp, with any mask
    if (size_.drops) saved.compute_elements_per_token -= 2 * q_ - kv_;  // keys and values are not repeated
    if (masks()) saved.float32_per_token += heads_;
    saved.repeated_in_fp32_per_token = saved.host_float32_per_token = 0;
  } else if (!size_.drops) {  // kernels that save their result save one that is not the block's
    saved.compute_elements_per_token += sent_kv_ - kv_ + (masks() ? 0 : q_);
    if (size_.windowed() && !capped) saved.host_float32_per_token += q_;
  }
}

/// Queries of a chunk or of a tile of them, and the keys that they see of those at hand.
ContextNumbers::Tile ContextNumbers::tile() const {
  const int64_t own = context_.own(size_.seq_len), chunk = own / 2, at_hand = gathers() ? own * context_.ranks : chunk;
  const int64_t queries = size_.drops ? chunk : std::min(chunk, attention_tile);
  const int64_t keys = size_.windowed() ? std::min(at_hand, size_.form.window + queries - 1) : at_hand;
  const auto per_token = [&](double elements) { return elements / static_cast<double>(own); };
  return {.scores = per_token(heads_ * static_cast<double>(queries * keys)),
          .queries = q_ * per_token(static_cast<double>(queries)),
          .keys = kv_ / 2 * per_token(static_cast<double>(keys)),
          .copied_keys = size_.key_heads > 1 ? kv_ / 2 * per_token(static_cast<double>(keys)) : 0};
}

/// The temporaries of a part of attention. Of the fused kernel there is its result; 16-bit values are merged in fp32. In single operations
/// there are copies of the inputs, scores and results; of dropout also the mask and its copy in the dtype of scores.
std::vector<MemoryMoment> ContextNumbers::piece() const {
  if (!masks())
    return {{.compute_elements_per_token = q_ / 2, .widened_per_token = q_ / 2, .float32_per_token = 2 * heads_}};
  const auto t = tile();
  std::vector<MemoryMoment> moments = {{.compute_elements_per_token = t.scores + 2 * t.queries + 2 * t.copied_keys,
                                        .widened_per_token = t.scores + t.queries,
                                        .float32_per_token = heads_}};
  if (size_.drops)
    moments.push_back({.compute_elements_per_token = 2 * t.scores + t.queries + t.copied_keys,
                       .mask_bytes_per_token = t.scores,
                       .widened_per_token = t.scores,
                       .float32_per_token = heads_});
  return moments;
}

/// The gradients of a part. Those of 16-bit keys are copied to fp32 before they are added.
MemoryMoment ContextNumbers::piece_backward() const {
  if (!masks()) {
    const double keys = gathers() ? kv_ * (ranks_ - 0.5) : kv_ / 2;
    return {.compute_elements_per_token = q_ / 2 + keys, .widened_per_token = keys / 2};
  }
  const auto t = tile();
  // Probabilities and their gradients; of dropout a copy of the mask, too, and of a soft cap the hyperbolic tangents. Without dropout
  // copies of keys and values and the gradients of values; with it the values are freed before.
  const double tiles = 2 + (size_.form.softcap > 0 ? 1 : 0) + (size_.drops ? 1 : 0);
  return {
      .compute_elements_per_token = tiles * t.scores + 2 * t.queries + t.keys + (size_.drops ? 1 : 2) * t.copied_keys,
      .mask_bytes_per_token = size_.drops ? t.scores : 0,
      .widened_per_token = (size_.drops ? tiles : tiles + 1) / 2 * t.scores,
      .float32_per_token = heads_};
}

std::vector<MemoryMoment> ContextNumbers::forward(double beside) const {
  if (!size_.drops) return forward_of_form(beside);
  auto moments = forward_of_form(beside);
  for (auto& moment : moments) moment.trains = true;
  auto size = size_;
  size.drops = false;
  for (auto& moment : ContextNumbers(size, context_).forward_of_form(beside)) {
    moment.trains = false;
    moments.push_back(moment);
  }
  return moments;
}

std::vector<MemoryMoment> ContextNumbers::forward_of_form(double beside) const {
  const double inputs = beside + q_ + kv_;
  auto moments = piece();
  for (auto& moment : moments) {
    moment.compute_elements_per_token += inputs + (gathers() ? kv_ * ranks_ : 2 * kv_);
    moment.float32_per_token += q_ + heads_;
  }
  if (gathers())  // keys and values as they are sent, as they arrive, and in the order of rows
    moments.push_back(
        {.compute_elements_per_token = inputs + kv_ + 2 * kv_ * ranks_, .float32_per_token = q_ + heads_});
  return moments;
}

MemoryMoment ContextNumbers::backward(double beside) const {
  auto moment = piece_backward();
  moment.compute_elements_per_token += beside + 3 * q_ + kv_;
  moment.float32_per_token += q_ + heads_;
  if (gathers()) {
    moment.compute_elements_per_token += kv_ * ranks_;
    moment.float32_per_token += kv_ * ranks_;
  } else {  // keys and values, and those that arrive; three sums of gradients: this rank's, one on its way, and one that arrives
    moment.compute_elements_per_token += context_.ranks > 2 ? 2 * kv_ : kv_;
    moment.float32_per_token += 3 * kv_;
  }
  return moment;
}

std::vector<MemoryMoment> ContextNumbers::forward_exchanges(double beside) const {
  const double inputs = beside + q_ + kv_, repeated = sent_kv_ > kv_ ? sent_kv_ : 0;
  return {{.compute_elements_per_token = inputs + repeated + 2 * (q_ + sent_kv_)},
          {.compute_elements_per_token = inputs + 3 * q_}};
}

MemoryMoment ContextNumbers::backward_exchange(double beside) const {
  return {.compute_elements_per_token = beside + 3 * (q_ + sent_kv_)};
}

}  // namespace runner
