#include "runner/models/attention.hpp"

#include "runner/models/bfloat16_attention.hpp"
#include "runner/models/eager_attention.hpp"
#include "runner/models/fused_kernel.hpp"
#include "runner/models/host_attention.hpp"

namespace runner {

using torch::Tensor;

namespace {

/// ATen's kernel, of heads [B, T, heads, head_dim].
Tensor fused_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionForm& form) {
  int64_t group = q.size(2) / k.size(2);
  auto queries = q.transpose(1, 2), keys = k.transpose(1, 2), values = v.transpose(1, 2);
  // The memory-efficient kernel is the only fused one for fp32, and it does not support grouped keys.
  static const FusedKernel efficient("aten::_scaled_dot_product_efficient_attention");
  if (group > 1 && q.scalar_type() == torch::kFloat32 && efficient.serves(q)) {
    keys = keys.repeat_interleave(group, 1);
    values = values.repeat_interleave(group, 1);
    group = 1;
  }
  return at::scaled_dot_product_attention(queries, keys, values, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                          /*is_causal=*/true, form.scale, /*enable_gqa=*/group > 1);
}

}  // namespace

Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Dropout& dropout,
                        const ForwardContext& context, const AttentionForm& form) {
  const bool windowed = form.window > 0 && form.window < q.size(1);
  const bool fused = !dropout.active(context) && form.softcap == 0;
  if (fused && host_attention_takes(q, k, v)) return host_attention(q, k, v, form);
  if (fused && !windowed && bfloat16_attention_takes(q, k, v)) return bfloat16_attention(q, k, v, form);
  if (!dropout.active(context) && (windowed || !fused)) return tiled_attention(q, k, v, form);
  at::DimVector out_sizes{q.size(0) * q.size(1), q.size(2) * q.size(3)};
  auto out = fused ? fused_attention(q, k, v, form)
                   : dropout_attention(q, k, v, form, dropout.p(), dropout.place(context, DropoutSite::attention));
  return out.transpose(1, 2).reshape(out_sizes);
}

}  // namespace runner
