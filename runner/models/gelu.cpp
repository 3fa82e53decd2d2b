#include "runner/models/gelu.hpp"

#include <ATen/Parallel.h>

#include <array>

#include "runner/base/bfloat16.hpp"
#include "strategies/contract/profiled.hpp"

namespace runner {

using torch::Tensor, torch::autograd::AutogradContext, torch::autograd::variable_list;

namespace {

const char* aten_name(Gelu form) { return form == Gelu::exact ? "none" : "tanh"; }

/// Elements that are converted at a time. Their fp32 values fit in the first-level cache.
constexpr int64_t piece = 2048;

void overwrite(float* x, float* y, int64_t count, Gelu form) { gelu_with_derivative(x, y, count, form); }

/// overwrite() for bfloat16, with fp32 arithmetic.
void overwrite(at::BFloat16* x, at::BFloat16* y, int64_t count, Gelu form) {
  std::array<float, piece> wide, value;
  auto *in = reinterpret_cast<uint16_t*>(x), *out = reinterpret_cast<uint16_t*>(y);
  for (int64_t begin = 0; begin < count; begin += piece) {
    const int64_t size = std::min(piece, count - begin);
    widen_bfloat16(in + begin, wide.data(), size);
    gelu_with_derivative(wide.data(), value.data(), size, form);
    narrow_bfloat16(value.data(), out + begin, size);
    narrow_bfloat16(wide.data(), in + begin, size);
  }
}

template <class Element>
void overwrite_all(const Tensor& x, const Tensor& y, Gelu form) {
  auto *in = x.data_ptr<Element>(), *out = y.data_ptr<Element>();
  at::parallel_for(0, x.numel(), 16384,
                   [&](int64_t begin, int64_t end) { overwrite(in + begin, out + begin, end - begin, form); });
}

class HostGelu : public torch::autograd::Function<HostGelu> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, int64_t form) {
    auto y = at::empty_like(x);
    const bool wide = x.scalar_type() == torch::kFloat32;
    if (!x.is_meta()) (wide ? overwrite_all<float> : overwrite_all<at::BFloat16>)(x, y, static_cast<Gelu>(form));
    context->save_for_backward({x});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {at::mul(gradients[0], context->get_saved_variables()[0]), Tensor()};
  }
};

}  // namespace

Tensor gelu(const Tensor& x, Gelu form) {
  bool dtype = x.scalar_type() == torch::kFloat32 || x.scalar_type() == torch::kBFloat16;
  bool host = on_host(x) && dtype && x.is_contiguous();
  return host ? HostGelu::apply(x, static_cast<int64_t>(form)) : at::gelu(x, aten_name(form));
}

}  // namespace runner
