// Generates text with the model in training: one forward per token, without a cache of keys and values.
#pragma once
#include <functional>
#include <vector>

#include "runner/lua/training.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/engine/engine.hpp"

namespace runner {

/// Limits of the model and its tokenizer.
struct GenerationLimits {
  int64_t window = 1;  ///< the largest number of tokens in a forward; the last ones are used
  int64_t vocab = 1;   ///< tokens that may be drawn: [0, vocab)
};

/// Returns `tokens` followed by the generated ones. A draw depends only on the seed, the position and the logits.
/// `agree` takes the token that this rank drew and returns the one to use. Every rank makes the same call.
std::vector<int64_t> generate(Engine& engine, std::vector<int64_t> tokens, const lua::Generation& wanted, uint64_t seed,
                              const GenerationLimits& limits, const std::function<int64_t(int64_t)>& agree);

/// The token that `uniform`, in [0, 1), draws from logits [vocab]. At temperature 0: the most likely token. Otherwise
/// by softmax(logits / temperature) over the `top_k` most likely tokens (0: all), in order of decreasing probability.
int64_t draw_token(const torch::Tensor& logits, double temperature, int64_t top_k, double uniform);

}  // namespace runner
