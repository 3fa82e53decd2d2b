// A fused attention operator for the simulated device, as CUDA has: it saves the logarithms of the sums of
// exponentials, not the probabilities. Without it LibTorch would decompose attention, which takes more memory.
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <torch/library.h>

#include "tests/device/operators.hpp"

namespace runner::simulated {

namespace {

using at::Tensor;

int64_t choose_attention(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double, bool,
                         std::optional<double>, bool) {
  return static_cast<int64_t>(sdp::SDPBackend::efficient_attention);
}

// The kernel on the host. Keys and values may have fewer heads than queries. Tensors are [B, H, T, head_dim].

Tensor for_heads(const Tensor& keys, int64_t heads) { return keys.repeat_interleave(heads / keys.size(1), 1); }

std::tuple<Tensor, Tensor> attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale) {
  auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
      q, for_heads(k, q.size(1)), for_heads(v, q.size(1)), 0.0, /*is_causal=*/true, {}, scale);
  return {out, sums};
}

std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor& gradient, const Tensor& q, const Tensor& k,
                                                      const Tensor& v, const Tensor& out, const Tensor& sums,
                                                      double scale) {
  const int64_t heads = q.size(1);
  auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient, q, for_heads(k, heads), for_heads(v, heads), out, sums, 0.0, /*is_causal=*/true, {}, scale);
  const auto of_group = [&](const Tensor& repeated, const Tensor& keys) {
    return repeated.unflatten(1, {keys.size(1), heads / keys.size(1)}).sum(2);
  };
  return {dq, of_group(dk, k), of_group(dv, v)};
}

// LibTorch's operators. They call the kernel as an operator of the device.

double scale_of(const Tensor& q, std::optional<double> scale) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1))));
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                               const std::optional<Tensor>& bias, bool, double dropout,
                                                               bool is_causal, std::optional<double> scale) {
  TORCH_CHECK(!bias && dropout == 0 && is_causal, "the simulated device has only causal attention without dropout");
  static const auto kernel =
      c10::Dispatcher::singleton().findSchemaOrThrow("simulated::attention", "").typed<decltype(attention)>();
  auto [out, sums] = kernel.call(q, k, v, scale_of(q, scale));
  return {out, sums, at::empty({0}, at::kLong), at::empty({0}, at::kLong)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> efficient_attention_backward(
    const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&, const Tensor& out,
    const Tensor& sums, const Tensor&, const Tensor&, double, std::array<bool, 4>, bool, std::optional<double> scale) {
  static const auto kernel = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("simulated::attention_backward", "")
                                 .typed<decltype(attention_backward)>();
  auto [dq, dk, dv] = kernel.call(gradient, q, k, v, out, sums, scale_of(q, scale));
  return {dq, dk, dv, Tensor()};
}

}  // namespace

}  // namespace runner::simulated

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &runner::simulated::choose_attention)
}

TORCH_LIBRARY(simulated, m) {
  m.def("attention(Tensor q, Tensor k, Tensor v, float scale) -> (Tensor, Tensor)");
  m.def(
      "attention_backward(Tensor gradient, Tensor q, Tensor k, Tensor v, Tensor out, Tensor sums, float scale) -> "
      "(Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(simulated, CPU, m) {
  m.impl("attention", runner::simulated::attention);
  m.impl("attention_backward", runner::simulated::attention_backward);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_scaled_dot_product_efficient_attention", runner::simulated::efficient_attention);
  m.impl("_scaled_dot_product_efficient_attention_backward", runner::simulated::efficient_attention_backward);
}
