#include "runner/models/gelu.hpp"

#include <ATen/Parallel.h>

namespace runner {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

const char* aten_name(Gelu form) { return form == Gelu::exact ? "none" : "tanh"; }

class HostGelu : public torch::autograd::Function<HostGelu> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, int64_t form) {
    auto y = at::empty_like(x);
    float *in = x.data_ptr<float>(), *out = y.data_ptr<float>();
    at::parallel_for(0, x.numel(), 16384, [&](int64_t begin, int64_t end) {
      gelu_with_derivative(in + begin, out + begin, end - begin, static_cast<Gelu>(form));
    });
    context->save_for_backward({x});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {at::mul(gradients[0], context->get_saved_variables()[0]), Tensor()};
  }
};

}  // namespace

Tensor gelu(const Tensor& x, Gelu form) {
  bool host = x.is_cpu() && x.scalar_type() == torch::kFloat32 && x.is_contiguous();
  return host ? HostGelu::apply(x, static_cast<int64_t>(form)) : at::gelu(x, aten_name(form));
}

}  // namespace runner
