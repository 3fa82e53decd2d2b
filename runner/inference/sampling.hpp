// Drawing the next token from logits.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "runner/inference/generation_settings.hpp"

namespace runner {

/// Draws tokens by rules. Keeps its buffers, so that drawing does not allocate.
class Sampler {
 public:
  explicit Sampler(const SamplingRules& rules) : rules_(rules) {}
  /// `logits` is changed. `seen`: the tokens of the sequence, for the repetition penalty. `uniform` in [0, 1) decides. Of equal logits,
  /// the first token is the greater one.
  int32_t draw(std::span<float> logits, std::span<const int32_t> seen, double uniform);

 private:
  struct Candidate {
    float logit;
    int32_t token;
    double weight;  ///< the probability, times a common factor
  };
  void penalize(std::span<float> logits, std::span<const int32_t> seen);
  void find_candidates(std::span<const float> logits, float most);
  void keep_top_p(double total);

  SamplingRules rules_;
  std::vector<Candidate> candidates_;
  std::vector<float> greatest_;
  std::vector<bool> penalized_;
};

/// In [0, 1), for the token at position `place` of sample number `sample`. Depends on nothing else.
double uniform_draw(uint64_t seed, uint64_t sample, uint64_t place);

}  // namespace runner
