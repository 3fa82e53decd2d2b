#include "runner/train/hooks/generate.hpp"

#include <algorithm>

#include "runner/base/hash.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

/// In [0, 1), from the upper 53 bits.
double uniform_of(uint64_t seed, int64_t place) {
  return static_cast<double>(mix64(mix64(seed) + static_cast<uint64_t>(place)) >> 11) * 0x1p-53;
}

}  // namespace

int64_t draw_token(const torch::Tensor& logits, double temperature, int64_t top_k, double uniform) {
  auto [values, tokens] = logits.to(torch::kCPU, torch::kFloat64).sort(/*stable=*/true, 0, /*descending=*/true);
  int64_t count = top_k > 0 ? std::min(top_k, values.size(0)) : values.size(0);
  if (temperature == 0) count = 1;
  auto shares = at::softmax(values.narrow(0, 0, count) / (temperature == 0 ? 1 : temperature), 0).cumsum(0);
  const double* share = shares.data_ptr<double>();
  auto drawn = std::upper_bound(share, share + count, uniform * share[count - 1]) - share;
  return tokens[std::min<int64_t>(drawn, count - 1)].item<int64_t>();
}

std::vector<int64_t> generate(Engine& engine, std::vector<int64_t> tokens, const lua::Generation& wanted, uint64_t seed,
                              const GenerationLimits& limits, const std::function<int64_t(int64_t)>& agree) {
  for (int64_t made = 0; made < wanted.max_new_tokens; ++made) {
    auto seen = std::min(limits.window, static_cast<int64_t>(tokens.size()));
    const auto window = std::span(tokens).last(static_cast<size_t>(seen));
    auto values = engine.logits(token_batch(1, window, std::vector(window.size(), ignored_target)), seen - 1);
    auto logits = torch::from_blob(values.data(), {limits.vocab}, torch::kFloat32);
    auto place = static_cast<int64_t>(tokens.size());
    tokens.push_back(agree(draw_token(logits, wanted.temperature, wanted.top_k, uniform_of(seed, place))));
  }
  return tokens;
}

}  // namespace runner
