#include "runner/models/layers.hpp"

#include <ATen/autocast_mode.h>

#include <algorithm>

#include "runner/models/fused_kernel.hpp"
#include "runner/models/host_layer_norm.hpp"

namespace runner {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

ComputeScope::ComputeScope(const Tensor& reference)
    : dtype(at::autocast::is_autocast_enabled(reference.device().type())
                ? at::autocast::get_autocast_dtype(reference.device().type())
                : reference.scalar_type()) {}

Parameter::Parameter(const Model& model, const std::string& name)
    : slots_(&model.slots), index_(model.spec.slot(name)) {}

Parameter Parameter::optional(const Model& model, const std::string& name) {
  auto all = model.spec.parameters();
  bool listed = std::any_of(all.begin(), all.end(), [&](const auto* parameter) { return parameter->name == name; });
  return listed ? Parameter(model, name) : Parameter();
}

Tensor Parameter::as(torch::ScalarType dtype) const { return slots_ ? (*slots_)[index_].to(dtype) : Tensor(); }

Linear::Linear(const Model& model, const std::string& name)
    : weight_(model, name + ".weight"), bias_(Parameter::optional(model, name + ".bias")) {}

Tensor Linear::operator()(const Tensor& x) const {
  return at::linear(x, weight_.as(x.scalar_type()), bias_.as(x.scalar_type()));
}

namespace {

/// at::linear without its result, and with the same backward (derivatives.yaml: addmm and mm) for rows x [N, in].
class UnusedLinear : public torch::autograd::Function<UnusedLinear> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["bias"] = bias.has_value();
    return at::zeros({x.size(0), weight.size(0)}, x.options());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &gradient = gradients[0];
    const bool has_bias = context->saved_data["bias"].toBool();
    variable_list results(3);
    if (context->needs_input_grad(0)) results[0] = at::mm(gradient, weight);
    if (context->needs_input_grad(1)) results[1] = at::mm(gradient.t(), x);
    if (has_bias && context->needs_input_grad(2)) results[2] = gradient.sum(at::IntArrayRef{0});
    return results;
  }
};

}  // namespace

Tensor Linear::last(const Tensor& x, const ForwardContext& context) const {
  if (!context.output_unused) return (*this)(x);
  const auto bias = bias_.as(x.scalar_type());
  return UnusedLinear::apply(x, weight_.as(x.scalar_type()), bias.defined() ? std::optional(bias) : std::nullopt);
}

LayerNorm::LayerNorm(const Model& model, const std::string& name, double eps)
    : weight_(model, name + ".weight"), bias_(Parameter::optional(model, name + ".bias")), eps_(eps) {}

Tensor LayerNorm::operator()(const Tensor& x) const {
  auto weight = weight_.as(x.scalar_type()), bias = bias_.as(x.scalar_type());
  if (x.is_cpu() && x.scalar_type() == torch::kBFloat16) return host_layer_norm(x.contiguous(), weight, bias, eps_);
  return std::get<0>(at::native_layer_norm(x, {x.size(-1)}, weight, bias, eps_));
}

RmsNorm::RmsNorm(const Model& model, const std::string& name, double eps)
    : weight_(model, name + ".weight"), eps_(eps) {}

Tensor RmsNorm::operator()(const Tensor& x) const { return rms_norm(x, weight_.as(x.scalar_type()), eps_); }

namespace {

/// Values of half precision are reduced and scaled in fp32.
torch::ScalarType statistics_dtype(const Tensor& x) {
  return x.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, double eps) {
    auto dtype = statistics_dtype(x);
    auto norm = at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, /*keepdim=*/true, dtype);
    auto scale = norm.square_().div_(x.size(-1)).add_(eps).rsqrt_();
    context->save_for_backward({x, weight, scale});
    return at::mul(x, scale).to(x.scalar_type()).mul_(weight);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &scale = saved[2];
    auto dtype = scale.scalar_type();
    auto gradient = gradients[0].to(dtype);
    auto normed = at::mul(x, scale);
    auto product = at::mul(gradient, normed);
    auto weight_gradient = product.sum(at::IntArrayRef{0}).to(weight.scalar_type());
    auto wide_weight = weight.to(dtype);
    auto mean = at::mv(product, wide_weight).div_(x.size(-1)).unsqueeze(1);
    at::mul_out(product, gradient, wide_weight);  // reuses the memory of `product`
    return {product.addcmul_(normed, mean, -1).mul_(scale).to(x.scalar_type()), weight_gradient, Tensor()};
  }
};

class SwigluFunction : public torch::autograd::Function<SwigluFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& gate, const Tensor& up) {
    context->save_for_backward({gate, up});
    return at::silu(gate).mul_(up);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const Tensor &gate = saved[0], &up = saved[1];
    // Two statements, so that the temporary product is freed before the second gradient is computed.
    auto gate_gradient = at::silu_backward(at::mul(gradients[0], up), gate);
    return {gate_gradient, at::silu(gate).mul_(gradients[0])};
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  // Without a fused kernel, ATen decomposes it into operations that each save a tensor of x's size.
  static const FusedKernel fused("aten::_fused_rms_norm");
  if (fused.serves(x)) return std::get<0>(at::_fused_rms_norm(x, {x.size(-1)}, weight, eps));
  return RmsNormFunction::apply(x, weight, eps);
}

Tensor swiglu(const Tensor& gate, const Tensor& up) { return SwigluFunction::apply(gate, up); }

}  // namespace runner
