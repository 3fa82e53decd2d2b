// Shared parts of losses that compute logits for a few tokens at a time.
#pragma once
#include <algorithm>

#include "strategies/collective/libtorch.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

/// Calls body(start, tokens) for each chunk.
template <typename Body>
void for_each_chunk(int64_t tokens, int64_t chunk_tokens, Body&& body) {
  int64_t step = chunk_tokens > 0 ? chunk_tokens : std::max<int64_t>(tokens, 1);
  for (int64_t start = 0; start < tokens; start += step) body(start, std::min(step, tokens - start));
}

/// a^T b. Of float16 operands the result is fp32: a sum over tokens, which no loss scale has divided yet, can exceed float16.
inline torch::Tensor summed_product(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.scalar_type() != torch::kFloat16) return at::mm(a.t(), b);
  return a.is_cuda() ? at::mm(a.t(), b, torch::kFloat32) : at::mm(a.to(torch::kFloat32).t(), b.to(torch::kFloat32));
}

/// Adds a^T b to `sum`, whose dtype may be wider than that of a and b.
inline void add_product(torch::Tensor& sum, const torch::Tensor& a, const torch::Tensor& b) {
  if (sum.scalar_type() == a.scalar_type())
    sum.addmm_(a.t(), b);
  else
    sum.add_(summed_product(a, b));
}

/// A summed gradient in the dtype of its parameter. That of a float16 parameter stays as it is, for the same reason: autograd casts it when
/// backward has multiplied it.
inline torch::Tensor as_gradient_of(const torch::Tensor& parameter, const torch::Tensor& sum) {
  return parameter.scalar_type() == torch::kFloat16 ? sum : sum.to(parameter.scalar_type());
}

}  // namespace runner
