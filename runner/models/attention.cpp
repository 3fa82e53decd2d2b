#include "runner/models/attention.hpp"

#include <ATen/Context.h>

#include <mutex>

#include "runner/models/bfloat16_attention.hpp"
#include "runner/models/context_attention.hpp"
#include "runner/models/eager_attention.hpp"
#include "runner/models/fused_kernel.hpp"
#include "runner/models/host_attention.hpp"
#include "strategies/collective/counting_allocator.hpp"
#include "strategies/contract/profiled.hpp"
#include "strategies/contract/tensor_axis.hpp"

namespace runner {

using torch::Tensor;

namespace {

/// While one exists, no thread uses the attention of cuDNN. It compiles a kernel for each shape, which takes about 30 ms on an H100.
class WithoutCudnn {
 public:
  WithoutCudnn() {
    const std::lock_guard lock(mutex_);
    if (users_++ == 0) before_ = at::globalContext().userEnabledCuDNNSDP(), at::globalContext().setSDPUseCuDNN(false);
  }
  ~WithoutCudnn() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) at::globalContext().setSDPUseCuDNN(before_);
  }
  WithoutCudnn(const WithoutCudnn&) = delete;
  WithoutCudnn& operator=(const WithoutCudnn&) = delete;

 private:
  static inline std::mutex mutex_;  ///< guards what follows, and LibTorch's setting
  static inline int users_ = 0;
  static inline bool before_ = true;
};

/// The CPU's fused kernel, of heads [B, heads, T, head_dim]. Its buffers are the library's. Of tensors without values it only allocates.
struct FusedOnHost : torch::autograd::Function<FusedOnHost> {
  static Tensor empty(const Tensor& heads) {
    return at::empty({heads.size(0), heads.size(2), heads.size(1), heads.size(3)}, heads.options()).transpose(1, 2);
  }
  static std::tuple<Tensor, Tensor> run(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale) {
    if (!q.is_meta()) {
      const LibraryScope library;
      return at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, /*dropout_p=*/0.0, causal, /*attn_mask=*/{},
                                                             scale);
    }
    return {empty(q), at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(wide_dtype(q)))};
  }
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        bool causal, double scale) {
    auto [rows, log_sum_exp] = run(q, k, v, causal, scale);
    context->save_for_backward({q, k, v, rows, log_sum_exp});
    context->saved_data["causal"] = causal;
    context->saved_data["scale"] = scale;
    return rows;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    if (q.is_meta()) return {empty(q), empty(k), empty(v), Tensor(), Tensor()};
    const LibraryScope library;
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        gradients[0], q, k, v, saved[3], saved[4], /*dropout_p=*/0.0, context->saved_data["causal"].toBool(),
        /*attn_mask=*/{}, context->saved_data["scale"].toDouble());
    return {dq, dk, dv, Tensor(), Tensor()};
  }
};

/// ATen's kernel, of heads [B, T, heads, head_dim].
Tensor fused_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionForm& form) {
  std::optional<WithoutCudnn> without_cudnn;
  if (form.many_lengths) without_cudnn.emplace();
  int64_t group = q.size(2) / k.size(2);
  auto queries = q.transpose(1, 2), keys = k.transpose(1, 2), values = v.transpose(1, 2);
  // The memory-efficient kernel is the only fused one for fp32, and it does not support grouped keys.
  static const FusedKernel efficient("aten::_scaled_dot_product_efficient_attention");
  if (group > 1 && q.scalar_type() == torch::kFloat32 && efficient.serves(q)) {
    keys = keys.repeat_interleave(group, 1);
    values = values.repeat_interleave(group, 1);
    group = 1;
  }
  if (q.is_cpu() || is_profiled(q)) {
    const double scale = form.scale_for(q.size(3));
    if (torch::GradMode::is_enabled()) return FusedOnHost::apply(queries, keys, values, form.causal, scale);
    return std::get<0>(FusedOnHost::run(queries, keys, values, form.causal, scale));
  }
  return at::scaled_dot_product_attention(queries, keys, values, /*attn_mask=*/{}, /*dropout_p=*/0.0, form.causal,
                                          form.scale, /*enable_gqa=*/group > 1);
}

/// [B, H, T, head_dim] -> [B * T, H * head_dim].
Tensor rows_of(const Tensor& heads) {
  return heads.transpose(1, 2).reshape({heads.size(0) * heads.size(2), heads.size(1) * heads.size(3)});
}

/// Attention without dropout in rows that are one sequence each.
Tensor plain_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionForm& form) {
  if (!form.causal) return rows_of(fused_attention(q, k, v, form));
  const bool windowed = form.window > 0 && form.window < q.size(1);
  if (form.softcap == 0 && !windowed && bfloat16_attention_takes(q, k, v)) return bfloat16_attention(q, k, v, form);
  if (form.softcap > 0 || windowed) return tiled_attention(q, k, v, form);
  return rows_of(fused_attention(q, k, v, form));
}

/// plain_attention of each sequence of packed rows. Splitting all tokens once makes backward join the gradients once.
Tensor packed_attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionForm form,
                        const TokenPositions& positions) {
  form.many_lengths = true;
  std::vector<int64_t> lengths;
  for (const auto& sequence : sequences_of(q.size(0), q.size(1), positions.on_host)) lengths.push_back(sequence.length);
  auto split = [&](const Tensor& x) { return x.flatten(0, 1).split_with_sizes(lengths); };
  const auto queries = split(q), keys = split(k), values = split(v);
  std::vector<Tensor> results;
  for (size_t i = 0; i < lengths.size(); ++i)
    results.push_back(plain_attention(queries[i].unsqueeze(0), keys[i].unsqueeze(0), values[i].unsqueeze(0), form));
  return at::cat(results);
}

/// The dropout of probabilities. If several ranks share the heads, each has equally many.
PlacedDropout of_probabilities(const Tensor& q, const Dropout& dropout, const ForwardContext& context) {
  if (!dropout.active(context)) return {};
  PlacedDropout placed{dropout.p(), dropout.place(context, DropoutSite::attention)};
  placed.place.tokens = {};
  const int64_t heads = q.size(2);
  if (const auto* axis = context.tensor_axis)
    placed.place.parts = {{.dim = 1, .first = axis->rank() * heads, .whole = axis->size() * heads}};
  return placed;
}

}  // namespace

Tensor undropped_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionForm& form) {
  if (form.softcap == 0 && host_attention_takes(q, k, v)) return host_attention(q, k, v, form);
  return plain_attention(q, k, v, form);
}

Tensor attention_of_rows(const Tensor& q, const Tensor& k, const Tensor& v, const PlacedDropout& dropout,
                         const AttentionForm& form, const TokenPositions& positions) {
  if (dropout.drops()) return rows_of(dropout_attention(q, k, v, form, dropout.p, dropout.place, positions.on_device));
  if (form.softcap == 0 && host_attention_takes(q, k, v)) return host_attention(q, k, v, form, positions.on_host);
  return positions.packed() ? packed_attention(q, k, v, form, positions) : plain_attention(q, k, v, form);
}

Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Dropout& dropout,
                        const ForwardContext& context, AttentionForm form, const TokenPositions& positions) {
  const auto placed = of_probabilities(q, dropout, context);
  form.many_lengths = context.logits_of.has_value();  // a text grows by a token from call to call
  if (context.context_axis) return context_attention(q, k, v, placed, form, *context.context_axis, *context.batch);
  return attention_of_rows(q, k, v, placed, form, positions);
}

Tensor bidirectional_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Dropout& dropout,
                               const ForwardContext& context, const TokenPositions& positions) {
  const AttentionForm form{.causal = false};
  if (const auto placed = of_probabilities(q, dropout, context); placed.drops())
    return rows_of(dropout_attention(q, k, v, form, placed.p, placed.place, positions.on_device));
  return positions.packed() ? packed_attention(q, k, v, form, positions) : plain_attention(q, k, v, form);
}

}  // namespace runner
