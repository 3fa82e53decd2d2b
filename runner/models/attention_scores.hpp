// Scores of attention in single operations: their scale and soft cap, and the gradient through them.
#pragma once
#include <limits>

#include "runner/models/attention_form.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

/// The score of a key that a query does not see.
constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

/// Scores in the form's scale and cap. `tanh`, unless null, receives tanh(score / cap), which backward needs, if there is a cap.
inline torch::Tensor in_form(torch::Tensor scores, const AttentionForm& form, int64_t head_dim, torch::Tensor* tanh) {
  scores.mul_(form.scale_for(head_dim));
  if (form.softcap == 0) return scores;
  scores.div_(form.softcap).tanh_();
  if (!tanh) return scores.mul_(form.softcap);
  *tanh = scores;
  return scores * form.softcap;
}

/// The gradient of scores before scale and cap, in place. Overwrites `tanh`.
inline torch::Tensor& through_form(torch::Tensor& gradient, const AttentionForm& form, int64_t head_dim,
                                   torch::Tensor& tanh) {
  if (form.softcap > 0) gradient.mul_(tanh.square_().neg_().add_(1));
  return gradient.mul_(form.scale_for(head_dim));
}

}  // namespace runner
