#include "runner/inference/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "runner/base/hash.hpp"

namespace runner {

void Sampler::penalize(std::span<float> logits, std::span<const int32_t> seen) {
  const auto penalty = static_cast<float>(rules_.repetition_penalty);
  if (penalty == 1) return;
  penalized_.assign(logits.size(), false);
  for (const int32_t token : seen) {
    const auto at = static_cast<size_t>(token);
    if (at >= logits.size() || penalized_[at]) continue;
    penalized_[at] = true;
    logits[at] = logits[at] > 0 ? logits[at] / penalty : logits[at] * penalty;
  }
}

/// Fills candidates_ with tokens that temperature, top_k and min_p leave. Leaves out some that top_p drops in any case.
void Sampler::find_candidates(std::span<const float> logits, float most) {
  float least = -INFINITY;
  if (rules_.top_k > 0 && rules_.top_k < std::ssize(logits)) {
    greatest_.assign(logits.begin(), logits.end());
    const auto kth = greatest_.begin() + (rules_.top_k - 1);
    std::nth_element(greatest_.begin(), kth, greatest_.end(), std::greater<>());
    least = *kth;
  }
  candidates_.clear();
  for (size_t token = 0; token < logits.size(); ++token)
    if (logits[token] >= least && logits[token] > -INFINITY)
      candidates_.push_back({.logit = logits[token],
                             .token = static_cast<int32_t>(token),
                             .weight = std::exp((static_cast<double>(logits[token]) - most) / rules_.temperature)});
}

/// Drops the least probable tokens while the others still reach top_p.
void Sampler::keep_top_p(double total) {
  // Tokens below this share together have less than 1 - top_p, so they are dropped without being sorted.
  const double least = (1 - rules_.top_p) * total / static_cast<double>(candidates_.size());
  std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.weight < least; });
  std::ranges::stable_sort(candidates_, std::greater<>(), &Candidate::weight);
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates_.size() && (kept == 0 || sum < rules_.top_p * total)) sum += candidates_[kept++].weight;
  candidates_.resize(kept);
}

int32_t Sampler::draw(std::span<float> logits, std::span<const int32_t> seen, double uniform) {
  penalize(logits, seen);
  const auto greatest = std::ranges::max_element(logits);
  if (rules_.temperature == 0) return static_cast<int32_t>(greatest - logits.begin());
  find_candidates(logits, *greatest);
  const auto total = [&] {
    return std::transform_reduce(candidates_.begin(), candidates_.end(), 0.0, std::plus<>(),
                                 [](const Candidate& candidate) { return candidate.weight; });
  };
  if (rules_.top_p < 1) keep_top_p(total());
  // The greatest weight is 1.
  if (rules_.min_p > 0)
    std::erase_if(candidates_, [&](const Candidate& candidate) { return candidate.weight < rules_.min_p; });
  double left = uniform * total();
  for (const auto& candidate : candidates_)
    if ((left -= candidate.weight) < 0) return candidate.token;
  return candidates_.empty() ? static_cast<int32_t>(greatest - logits.begin()) : candidates_.back().token;
}

double uniform_draw(uint64_t seed, uint64_t sample, uint64_t place) {
  return static_cast<double>(mix64(mix64(mix64(seed) + sample) + place) >> 11) * 0x1p-53;
}

}  // namespace runner
