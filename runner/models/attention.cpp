#include "runner/models/attention.hpp"

#include <cmath>
#include <limits>

#include "runner/models/bfloat16_attention.hpp"
#include "runner/models/fused_kernel.hpp"
#include "runner/models/host_attention.hpp"

namespace runner {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

double score_scale(const Tensor& q) { return 1 / std::sqrt(static_cast<double>(q.size(-1))); }

Tensor causal_probabilities(const Tensor& q, const Tensor& k) {
  auto scores = at::matmul(q, k.transpose(-2, -1)).mul_(score_scale(q));
  auto future = at::ones({q.size(-2), k.size(-2)}, q.options().dtype(torch::kBool)).triu_(1);
  return at::softmax(scores.masked_fill_(future, -std::numeric_limits<double>::infinity()), -1);
}

/// All tensors are [B, H, T, head_dim]. Saves q, k and v; backward recomputes probabilities and mask.
class DropoutAttention : public torch::autograd::Function<DropoutAttention> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v, double p,
                        MaskPlace place) {
    context->save_for_backward({q, k, v});
    context->saved_data["p"] = p;
    save_place(context, place);
    auto probabilities = causal_probabilities(q, k);
    auto kept = probabilities.mul_(keep_mask(probabilities.sizes(), q.device(), p, place));
    return at::matmul(kept, v).mul_(1 / (1 - p));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    double p = context->saved_data["p"].toDouble();
    auto gradient = at::mul(gradients[0], 1 / (1 - p));
    auto probabilities = causal_probabilities(q, k);
    auto mask = keep_mask(probabilities.sizes(), q.device(), p, saved_place(context));
    auto v_gradient = at::matmul(at::mul(probabilities, mask).transpose(-2, -1), gradient);
    auto probability_gradient = at::matmul(gradient, v.transpose(-2, -1)).mul_(mask);
    auto score_gradient =
        at::_softmax_backward_data(probability_gradient, probabilities, -1, q.scalar_type()).mul_(score_scale(q));
    return {at::matmul(score_gradient, k), at::matmul(score_gradient.transpose(-2, -1), q), v_gradient, Tensor(),
            Tensor()};
  }
};

}  // namespace

Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Dropout& dropout,
                        const ForwardContext& context) {
  if (!dropout.active(context) && host_attention_takes(q, k, v)) return host_attention(q, k, v);
  if (!dropout.active(context) && bfloat16_attention_takes(q, k, v)) return bfloat16_attention(q, k, v);
  int64_t heads = q.size(2), group = heads / k.size(2);
  at::DimVector out_sizes{q.size(0) * q.size(1), heads * q.size(3)};
  auto queries = q.transpose(1, 2), keys = k.transpose(1, 2), values = v.transpose(1, 2);
  // The memory-efficient kernel is the only fused one for fp32, and it does not support grouped keys.
  static const FusedKernel efficient("aten::_scaled_dot_product_efficient_attention");
  bool fused_in_fp32 = q.scalar_type() == torch::kFloat32 && efficient.serves(q);
  if (group > 1 && (dropout.active(context) || fused_in_fp32)) {
    keys = keys.repeat_interleave(group, 1);
    values = values.repeat_interleave(group, 1);
    group = 1;
  }
  Tensor out;
  if (dropout.active(context))
    out = DropoutAttention::apply(queries, keys, values, dropout.p(), dropout.place(context, DropoutSite::attention));
  else
    out =
        at::scaled_dot_product_attention(queries, keys, values, /*attn_mask=*/{}, /*dropout_p=*/0.0, /*is_causal=*/true,
                                         /*scale=*/{}, /*enable_gqa=*/group > 1);
  return out.transpose(1, 2).reshape(out_sizes);
}

}  // namespace runner
