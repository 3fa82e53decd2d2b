// Text from the model in training: one forward a token, without a cache of keys and values.
#pragma once
#include <functional>
#include <vector>

#include "runner/lua/training.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

/// What the model and its tokenizer allow.
struct GenerationLimits {
  int64_t window = 1;  ///< tokens that a forward sees, the last ones
  int64_t vocab = 1;   ///< tokens that may be drawn: [0, vocab)
  torch::Device device = torch::kCPU;
};

/// `tokens` and what follows them. A draw depends on (seed, place in the text) and the logits only; `agree` gets what
/// this rank drew and gives back what counts. Every rank calls it alike.
std::vector<int64_t> generate(Strategy& strategy, std::vector<int64_t> tokens, const lua::Generation& wanted,
                              uint64_t seed, const GenerationLimits& limits,
                              const std::function<int64_t(int64_t)>& agree);

/// The token that a number in [0, 1) draws from logits [vocab]: the likeliest at temperature 0, else by
/// softmax(logits / temperature) over the `top_k` likeliest (0: all), in falling order of likelihood.
int64_t draw_token(const torch::Tensor& logits, double temperature, int64_t top_k, double uniform);

}  // namespace runner
