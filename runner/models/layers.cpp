#include "runner/models/layers.hpp"

#include <ATen/autocast_mode.h>

#include <algorithm>

#include "runner/models/adapted_linear.hpp"
#include "runner/models/adapters.hpp"
#include "runner/models/fused_kernel.hpp"
#include "runner/models/gelu.hpp"
#include "runner/models/host_decoding.hpp"
#include "runner/models/host_layer_norm.hpp"
#include "runner/models/sequences.hpp"
#include "strategies/contract/profiled.hpp"
#include "strategies/contract/tensor_axis.hpp"

namespace runner {

using torch::Tensor, torch::autograd::AutogradContext, torch::autograd::variable_list;

ComputeScope::ComputeScope(const Tensor& reference)
    : dtype(at::autocast::is_autocast_available(reference.device().type()) &&
                    at::autocast::is_autocast_enabled(reference.device().type())
                ? at::autocast::get_autocast_dtype(reference.device().type())
            : is_profiled(reference) ? ProfiledScope::current()->autocast.value_or(reference.scalar_type())
                                     : reference.scalar_type()) {}

Parameter::Parameter(const Model& model, const std::string& name)
    : slots_(&model.slots), index_(model.spec.slot(name)) {}

namespace {

const ParameterSpec* find_parameter(const Model& model, const std::string& name) {
  for (const auto& block : model.spec.blocks)
    for (const auto& parameter : block.parameters)
      if (parameter.name == name) return &parameter;
  return nullptr;
}

}  // namespace

Parameter Parameter::optional(const Model& model, const std::string& name) {
  return find_parameter(model, name) ? Parameter(model, name) : Parameter();
}

Tensor Parameter::as(torch::ScalarType dtype) const { return slots_ ? (*slots_)[index_].to(dtype) : Tensor(); }

Linear::Linear(const Model& model, const std::string& name)
    : weight_(model, name + ".weight"), bias_(Parameter::optional(model, name + ".bias")) {
  const auto& matrix = *find_parameter(model, name + ".weight");
  if (matrix.part && matrix.split && matrix.split->dim == 1)
    columns_ = {.dim = 1, .first = matrix.part->boxes[0].start[1], .whole = matrix.whole_shape()[1]};
  const auto [a, b, magnitude] = adapter_names(name + ".weight");
  if (!Parameter::optional(model, a)) return;
  // Dropout masks of adapters have keys of their own.
  constexpr uint64_t first_adapter_key = uint64_t{1} << 32;
  const auto& adapter = *model.spec.adapter;
  adapter_ = {.a = Parameter(model, a),
              .b = Parameter(model, b),
              .magnitude = Parameter::optional(model, magnitude),
              .scale = adapter.scale,
              .dropout = Dropout(adapter.dropout, first_adapter_key + model.spec.slot(a))};
}

namespace {

/// at::linear with the same backward (derivatives.yaml: addmm and mm) for rows x [N, in], of which parts are left out: the result if it
/// is `unused`, and the product for the gradient of the weight if there is a `later`.
class PartialLinear : public torch::autograd::Function<PartialLinear> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, bool unused, const WeightGradients::Pointer& later) {
    context->save_for_backward({weight.requires_grad() ? x : Tensor(), weight});
    context->saved_data["bias"] = bias.has_value();
    WeightGradients::save(context, later);
    if (unused) return at::zeros({x.size(0), weight.size(0)}, x.options());
    return at::linear(x, weight, bias.value_or(Tensor()));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &gradient = gradients[0];
    const bool has_bias = context->saved_data["bias"].toBool();
    variable_list results(5);
    if (context->needs_input_grad(0)) results[0] = at::mm(gradient, weight);
    if (context->needs_input_grad(1)) {
      // Detached, because the graph of a saved tensor keeps others.
      const auto product = [gradient, x = x.detach()] { return at::mm(gradient.t(), x); };
      const auto later = WeightGradients::saved(context);
      later ? later->leave(weight, product) : void(results[1] = product());
    }
    if (has_bias && context->needs_input_grad(2)) results[2] = gradient.sum(at::IntArrayRef{0});
    return results;
  }
};

}  // namespace

/// The object that computes the gradient of the weight, if its backward does not.
WeightGradients::Pointer Linear::later(const Tensor& x, const ForwardContext& context) const {
  if (context.weight_gradients || !context.tensor_axis || columns_) return context.weight_gradients;
  return TensorAxis::during_sum(x);
}

Tensor Linear::product(const Tensor& x, const ForwardContext& context, bool unused) const {
  const auto bias = columns_ ? Tensor() : bias_.as(x.scalar_type());
  if (adapter_) return adapted(x, bias, context);
  const auto weight = weight_.as(x.scalar_type());
  const auto leaves_to = weight.requires_grad() ? later(x, context) : nullptr;
  if (unused || leaves_to) return PartialLinear::apply(x, weight, given(bias), unused, leaves_to);
  if (decodes_on_host(x) && few_rows(x, weight)) return few_rows_product(x, weight, bias, x.scalar_type());
  return at::linear(x, weight, bias);
}

Tensor Linear::complete(Tensor products, const ForwardContext& context, bool unused) const {
  if (!columns_) return products;
  auto sum = context.tensor_axis->leave(std::move(products), unused);
  return bias_ ? sum.add_(bias_.as(sum.scalar_type())) : sum;
}

Tensor Linear::complete_sum(const Linear& a, const Linear& b, Tensor sum, const ForwardContext& context) {
  sum = a.complete(std::move(sum), context, context.output_unused);
  return b.columns_ && b.bias_ ? sum.add_(b.bias_.as(sum.scalar_type())) : sum;
}

Tensor Linear::adapted(const Tensor& x, const Tensor& bias, const ForwardContext& context) const {
  const auto& [a, b, magnitude, scale, dropout] = *adapter_;
  const auto dtype = x.scalar_type();
  LowRank adapter{.a = a.as(dtype), .b = b.as(dtype), .scale = scale};
  if (dropout.active(context)) {
    adapter.dropout = {dropout.p(), dropout.place(context, DropoutSite::adapter)};
    if (columns_) adapter.dropout.place.parts = {*columns_};
  }
  const auto leaves_to = later(x, context);
  if (!magnitude) return lora_linear(x, weight_.as(dtype), bias, adapter, leaves_to);
  return dora_linear(x, weight_.as(dtype), bias, adapter, magnitude.as(wide_dtype(x)), leaves_to);
}

LayerNorm::LayerNorm(const Model& model, const std::string& name, double eps)
    : weight_(model, name + ".weight"), bias_(Parameter::optional(model, name + ".bias")), eps_(eps) {}

Tensor LayerNorm::operator()(const Tensor& x) const {
  auto weight = weight_.as(x.scalar_type()), bias = bias_.as(x.scalar_type());
  if (on_host(x) && x.scalar_type() == torch::kBFloat16) return host_layer_norm(x.contiguous(), weight, bias, eps_);
  return std::get<0>(at::native_layer_norm(x, {x.size(-1)}, weight, bias, eps_));
}

RmsNorm::RmsNorm(const Model& model, const std::string& name, double eps, StoredWeight stored)
    : weight_(model, name + ".weight"), eps_(eps), stored_(stored) {
  const auto& weight = *find_parameter(model, name + ".weight");
  if (!weight.part || !weight.split) return;
  whole_ = weight.whole_shape()[0];
  replicas_ = weight.part->replicas;
}

Tensor RmsNorm::operator()(const Tensor& x) const { return rms_norm(x, weight_.as(x.scalar_type()), eps_, stored_); }

namespace {

/// The factor of normed values, in the dtype of statistics.
Tensor wide_factor(const Tensor& weight, torch::ScalarType dtype, StoredWeight stored) {
  auto factor = weight.to(dtype);
  return stored == StoredWeight::minus_one ? factor + 1 : factor;
}

/// Rows of which x has some columns.
struct RowWidth {
  int64_t columns;                   ///< of complete rows
  const TensorAxis* axis = nullptr;  ///< its ranks have the other columns; null: x has all of them
  int replicas = 1;                  ///< ranks that have the same columns

  /// The mean over complete rows from sums over the columns of x.
  Tensor mean(Tensor sums) const {
    if (axis) sums = axis->sum(sums).div_(replicas);
    return sums.div_(columns);
  }
};

class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, double eps,
                        StoredWeight stored, const RowWidth& width) {
    auto dtype = wide_dtype(x);
    auto norm = at::linalg_vector_norm(x, 2, at::IntArrayRef{-1}, /*keepdim=*/true, dtype);
    auto scale = width.mean(norm.square_()).add_(eps).rsqrt_();
    context->save_for_backward({x, weight, scale});
    context->saved_data["columns"] = width.columns;
    context->saved_data["replicas"] = static_cast<int64_t>(width.replicas);
    context->saved_data["divided"] = width.axis != nullptr;
    if (width.axis) width.axis->save(context);
    context->saved_data["minus_one"] = stored == StoredWeight::minus_one;
    if (stored == StoredWeight::minus_one)
      return at::mul(x, scale).mul_(wide_factor(weight, dtype, stored)).to(x.scalar_type());
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
    const auto stored = context->saved_data["minus_one"].toBool() ? StoredWeight::minus_one : StoredWeight::plain;
    auto wide_weight = wide_factor(weight, dtype, stored);
    auto mean = mean_of(context, at::mv(product, wide_weight)).unsqueeze(1);
    at::mul_out(product, gradient, wide_weight);  // reuses the memory of `product`
    return {product.addcmul_(normed, mean, -1).mul_(scale).to(x.scalar_type()), weight_gradient, Tensor(), Tensor(),
            Tensor()};
  }

 private:
  static Tensor mean_of(AutogradContext* context, Tensor sums) {
    RowWidth width{.columns = context->saved_data["columns"].toInt(),
                   .replicas = static_cast<int>(context->saved_data["replicas"].toInt())};
    if (!context->saved_data["divided"].toBool()) return width.mean(std::move(sums));
    const auto axis = TensorAxis::saved(context);
    width.axis = &axis;
    return width.mean(std::move(sums));
  }
};

const char* gelu_form(Activation activation) { return activation == Activation::gelu ? "none" : "tanh"; }

Tensor value_of(Activation activation, const Tensor& x) {
  switch (activation) {
    case Activation::silu:
      return at::silu(x);
    case Activation::relu:
      return at::relu(x);
    default:
      return at::gelu(x, gelu_form(activation));
  }
}

Tensor input_gradient(Activation activation, const Tensor& gradient, const Tensor& x) {
  switch (activation) {
    case Activation::silu:
      return at::silu_backward(gradient, x);
    case Activation::relu:
      return at::threshold_backward(gradient, x, 0);
    default:
      return at::gelu_backward(gradient, x, gelu_form(activation));
  }
}

class GatedFunction : public torch::autograd::Function<GatedFunction> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& gate, const Tensor& up, Activation activation) {
    context->save_for_backward({gate, up});
    context->saved_data["activation"] = static_cast<int64_t>(activation);
    return value_of(activation, gate).mul_(up);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const Tensor &gate = saved[0], &up = saved[1];
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    // Two statements, so that the temporary product is freed before the second gradient is computed.
    auto gate_gradient = input_gradient(activation, at::mul(gradients[0], up), gate);
    return {gate_gradient, value_of(activation, gate).mul_(gradients[0]), Tensor()};
  }
};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, StoredWeight stored) {
  if (decodes_on_host(x)) return host_rms_norm(x, weight, eps, stored == StoredWeight::minus_one);
  // Without a fused kernel, ATen decomposes it into operations that each save a tensor of x's size. The fused kernel
  // takes a weight only in the dtype of x, in which 1 + weight would be rounded.
  static const FusedKernel fused("aten::_fused_rms_norm");
  const bool plain = stored == StoredWeight::plain;
  if (fused.serves(x) && (plain || x.scalar_type() == wide_dtype(x)))
    return std::get<0>(at::_fused_rms_norm(x, {x.size(-1)}, plain ? weight : weight + 1, eps));
  return RmsNormFunction::apply(x, weight, eps, stored, RowWidth{.columns = x.size(-1)});
}

Tensor RmsNorm::operator()(const Tensor& x, const TensorAxis* axis) const {
  if (whole_ == 0) return (*this)(x);
  const RowWidth width{.columns = whole_, .axis = axis, .replicas = replicas_};
  return RmsNormFunction::apply(x, weight_.as(x.scalar_type()), eps_, stored_, width);
}

Activation activation_named(const std::string& name) {
  if (name == "silu") return Activation::silu;
  if (name == "relu") return Activation::relu;
  return name == "gelu" ? Activation::gelu : Activation::gelu_tanh;
}

Tensor activated(const Tensor& x, Activation activation) {
  if (activation == Activation::gelu) return gelu(x, Gelu::exact);
  if (activation == Activation::gelu_tanh) return gelu(x, Gelu::tanh);
  return value_of(activation, x);
}

Tensor gated(const Tensor& gate, const Tensor& up, Activation activation) {
  if (c10::InferenceMode::is_enabled()) return value_of(activation, gate).mul_(up);
  return GatedFunction::apply(gate, up, activation);
}

}  // namespace runner
