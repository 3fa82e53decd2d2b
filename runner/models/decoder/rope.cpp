#include "runner/models/decoder/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runner/base/error.hpp"
#include "runner/models/decoder/decoder.hpp"

namespace runner::decoder {

namespace {

using Scaling = Recipe::Model::RopeScaling;

std::vector<double> plain_angles(double theta, int64_t rotary_dim) {
  std::vector<double> angles;
  for (int64_t i = 0; i < rotary_dim / 2; ++i)
    angles.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim)));
  return angles;
}

double llama3(double frequency, const Scaling& scaling) {
  double wavelength = 2 * std::numbers::pi / frequency;
  double turns = static_cast<double>(scaling.original_max_position_embeddings) / wavelength;
  double kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  kept = std::clamp(kept, 0.0, 1.0);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

/// The index of the pair that turns `turns` times over the original length, as a real number.
double pair_with(double turns, const Scaling& scaling, double theta, int64_t rotary_dim) {
  const auto length = static_cast<double>(scaling.original_max_position_embeddings);
  return static_cast<double>(rotary_dim) * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

void apply_yarn(RopeFrequencies& rope, const Scaling& scaling, double theta, int64_t rotary_dim) {
  const double low = std::max(std::floor(pair_with(scaling.beta_fast, scaling, theta, rotary_dim)), 0.0);
  double high = std::min(std::ceil(pair_with(scaling.beta_slow, scaling, theta, rotary_dim)),
                         static_cast<double>(rotary_dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < rope.angles.size(); ++i) {
    const double divided = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    rope.angles[i] *= divided / scaling.factor + (1 - divided);
  }
  const double usual = scaling.factor <= 1 ? 1 : 0.1 * std::log(scaling.factor) + 1;
  rope.factor = scaling.attention_factor.value_or(usual);
}

void apply_longrope(RopeFrequencies& rope, const Scaling& scaling, int64_t max_seq_len) {
  rope.long_angles = rope.angles;
  for (size_t i = 0; i < rope.angles.size(); ++i) {
    rope.angles[i] /= scaling.short_factor[i];
    rope.long_angles[i] /= scaling.long_factor[i];
  }
  const auto original = static_cast<double>(scaling.original_max_position_embeddings);
  const double ratio = static_cast<double>(max_seq_len) / original;
  rope.longer_than = scaling.original_max_position_embeddings;
  rope.factor = scaling.attention_factor.value_or(ratio <= 1 ? 1 : std::sqrt(1 + std::log(ratio) / std::log(original)));
}

void check_longrope(const Scaling& scaling, int64_t pairs) {
  auto check = [&](const char* key, const std::vector<double>& factors) {
    if (static_cast<int64_t>(factors.size()) != pairs)
      throw usage_error("model.rope_scaling.{} has {} values: must have one for each of the {} rotated pairs of a head",
                        key, factors.size(), pairs);
    for (double factor : factors)
      if (!(factor > 0)) throw usage_error("model.rope_scaling.{}: {} must be above 0", key, factor);
  };
  check("short_factor", scaling.short_factor);
  check("long_factor", scaling.long_factor);
}

}  // namespace

RopeFrequencies rope_frequencies(const Recipe::Model& model, bool local) {
  const bool own = local && model.rope_local_theta;
  const double theta = own ? *model.rope_local_theta : model.rope_theta;
  const int64_t rotary_dim = decoder_of(model).rotary_dim;
  RopeFrequencies rope{.angles = plain_angles(theta, rotary_dim)};
  if (own || !model.rope_scaling) return rope;
  const auto& scaling = *model.rope_scaling;
  if (scaling.rope_type == "yarn") {
    apply_yarn(rope, scaling, theta, rotary_dim);
  } else if (scaling.rope_type == "longrope") {
    apply_longrope(rope, scaling, model.max_seq_len);
  } else {
    for (double& angle : rope.angles)
      angle = scaling.rope_type == "linear" ? angle / scaling.factor : llama3(angle, scaling);
  }
  return rope;
}

void check_rope(const Recipe::Model& model, int64_t rotary_dim) {
  if (!(model.rope_theta > 0)) throw usage_error("model.rope_theta = {}: must be above 0", model.rope_theta);
  if (model.rope_local_theta && !(*model.rope_local_theta > 0))
    throw usage_error("model.rope_local_theta = {}: must be above 0", *model.rope_local_theta);
  const auto& scaling = model.rope_scaling;
  if (!scaling) return;
  const auto& type = scaling->rope_type;
  if (type != "linear" && type != "llama3" && type != "yarn" && type != "longrope")
    throw usage_error("model.rope_scaling.rope_type = \"{}\": allowed: linear, llama3, yarn or longrope", type);
  if (type != "longrope" && !(scaling->factor >= 1))
    throw usage_error("model.rope_scaling.factor = {}: must be at least 1", scaling->factor);
  if (type != "linear" && scaling->original_max_position_embeddings < 1)
    throw usage_error("model.rope_scaling.original_max_position_embeddings = {}: must be at least 1",
                      scaling->original_max_position_embeddings);
  if (type == "llama3" && !(scaling->low_freq_factor > 0 && scaling->high_freq_factor > scaling->low_freq_factor))
    throw usage_error("model.rope_scaling.high_freq_factor = {}: must be above low_freq_factor = {}, and that above 0",
                      scaling->high_freq_factor, scaling->low_freq_factor);
  if (type == "yarn" && !(scaling->beta_slow > 0 && scaling->beta_fast > scaling->beta_slow))
    throw usage_error("model.rope_scaling.beta_fast = {}: must be above beta_slow = {}, and that above 0",
                      scaling->beta_fast, scaling->beta_slow);
  if (scaling->attention_factor && !(*scaling->attention_factor > 0))
    throw usage_error("model.rope_scaling.attention_factor = {}: must be above 0", *scaling->attention_factor);
  if (type == "longrope") check_longrope(*scaling, rotary_dim / 2);
}

}  // namespace runner::decoder
