#include "runner/models/adapted_linear.hpp"

#include <algorithm>

#include "runner/models/sequences.hpp"
#include "strategies/contract/profiled.hpp"

namespace runner {

using torch::Tensor, torch::autograd::AutogradContext, torch::autograd::variable_list;

// A product with the mask would make a copy of it in the dtype of x.
namespace {

/// Rows of a 16-bit matrix that are converted to fp32 at a time: parts that fit the cache of a CPU, or are large enough for an
/// accelerator.
int64_t converted_rows(const Tensor& weight) {
  const int64_t part = int64_t{1} << (on_host(weight) ? 18 : 24);
  return std::min(weight.size(0), std::max<int64_t>(1, part / std::max<int64_t>(1, weight.size(1))));
}

void save_adapter(AutogradContext* context, const LowRank& adapter) {
  context->saved_data["scale"] = adapter.scale;
  context->saved_data["p"] = adapter.dropout.p;
  save_place(context, adapter.dropout.place);
}

LowRank saved_adapter(AutogradContext* context, const Tensor& a, const Tensor& b) {
  return {.a = a,
          .b = b,
          .scale = context->saved_data["scale"].toDouble(),
          .dropout = {.p = context->saved_data["p"].toDouble(), .place = saved_place(context)}};
}

/// Puts the gradients of A and B, which follow from that of their product, at the places 3 and 4 of `results`, or leaves them to `later`.
/// `middle`: dropped input times A^T. Returns the gradient of `middle`.
Tensor product_gradients(const Tensor& gradient, const Tensor& x, const LowRank& adapter, const Tensor& middle,
                         const WeightGradients::Pointer& later, variable_list& results) {
  const auto of_middle = at::mm(gradient, adapter.b).mul_(adapter.scale);
  const auto of_b = [gradient, middle, scale = adapter.scale] { return at::mm(gradient.t(), middle).mul_(scale); };
  // Detached, because the graph of a saved tensor keeps others.
  const auto of_a = [of_middle, x = x.detach(), dropout = adapter.dropout] {
    return at::mm(of_middle.t(), dropout(x));
  };
  if (later) {
    later->leave(adapter.b, of_b);
    later->leave(adapter.a, of_a);
  } else {
    results[4] = of_b();
    results[3] = of_a();
  }
  return of_middle;
}

class LoraLinear : public torch::autograd::Function<LoraLinear> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, const Tensor& a, const Tensor& b, const LowRank& adapter,
                        const WeightGradients::Pointer& later) {
    auto y = at::linear(x, weight, bias.value_or(Tensor()));
    const auto middle = at::mm(adapter.dropout(x), a.t());
    y.addmm_(middle, b.t(), /*beta=*/1, adapter.scale);
    context->save_for_backward({x, weight, a, b, middle});
    save_adapter(context, adapter);
    WeightGradients::save(context, later);
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &middle = saved[4], &gradient = gradients[0];
    const auto adapter = saved_adapter(context, saved[2], saved[3]);
    variable_list results(7);
    const auto of_middle = product_gradients(gradient, x, adapter, middle, WeightGradients::saved(context), results);
    if (!context->needs_input_grad(0)) return results;
    results[0] = at::mm(gradient, weight);
    adapter.dropout.drops() ? results[0].add_(adapter.dropout.apply_to(at::mm(of_middle, adapter.a)))
                            : results[0].addmm_(of_middle, adapter.a);
    return results;
  }
};

/// With f = m / n - 1, which small changes of m do not round away in 16 bits, and z = d W^T + scale d A^T B^T for the dropped input d:
/// y = z + f z + bias without dropout, and x W^T + bias + f z + scale d A^T B^T with it.
class DoraLinear : public torch::autograd::Function<DoraLinear> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, const Tensor& a, const Tensor& b, const Tensor& magnitude,
                        const LowRank& adapter, const WeightGradients::Pointer& later) {
    const auto norms = adapted_row_norms(weight, a, b, adapter.scale);
    const auto factor = at::div(magnitude, norms).sub_(1).to(x.scalar_type());
    auto z = Tensor(), y = Tensor(), middle = Tensor();
    if (adapter.dropout.drops()) {
      y = at::linear(x, weight, bias.value_or(Tensor()));
      const auto dropped = adapter.dropout(x);
      middle = at::mm(dropped, a.t());
      z = at::mm(dropped, weight.t());
      y.addmm_(middle, b.t(), /*beta=*/1, adapter.scale);
      z.addmm_(middle, b.t(), /*beta=*/1, adapter.scale);
      y.addcmul_(z, factor);
    } else {
      middle = at::mm(x, a.t());
      z = at::mm(x, weight.t()).addmm_(middle, b.t(), /*beta=*/1, adapter.scale);
      y = at::addcmul(z, z, factor);
      if (bias) y.add_(*bias);
    }
    context->save_for_backward({x, weight, a, b, middle, z, factor, norms});
    save_adapter(context, adapter);
    WeightGradients::save(context, later);
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &middle = saved[4], &z = saved[5], &factor = saved[6],
                 &norms = saved[7], &gradient = gradients[0];
    const auto adapter = saved_adapter(context, saved[2], saved[3]);
    const auto later = WeightGradients::saved(context);
    variable_list results(8);
    results[5] = at::mul(gradient, z).sum(at::IntArrayRef{0}).to(norms.scalar_type()).div_(norms);
    auto of_sum = at::addcmul(gradient, gradient, factor);  // of x W^T + scale x A^T B^T
    const auto of_middle = product_gradients(of_sum, x, adapter, middle, later, results);
    if (!context->needs_input_grad(0)) return results;
    if (!adapter.dropout.drops()) {
      results[0] = at::mm(of_sum, weight).addmm_(of_middle, adapter.a);
      return results;
    }
    later ? void(of_sum = at::mul(gradient, factor)) : void(at::mul_out(of_sum, gradient, factor));
    results[0] = at::mm(gradient, weight);
    results[0].add_(adapter.dropout.apply_to(at::mm(of_sum, weight).addmm_(of_middle, adapter.a)));
    return results;
  }
};

}  // namespace

Tensor lora_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LowRank& adapter,
                   const WeightGradients::Pointer& later) {
  return LoraLinear::apply(x, weight, given(bias), adapter.a, adapter.b, adapter, later);
}

Tensor dora_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LowRank& adapter,
                   const Tensor& magnitude, const WeightGradients::Pointer& later) {
  return DoraLinear::apply(x, weight, given(bias), adapter.a, adapter.b, magnitude, adapter, later);
}

Tensor adapted_row_norms(const Tensor& weight, const Tensor& a, const Tensor& b, double scale) {
  const auto wide = wide_dtype(weight);
  const auto a_wide = a.to(wide), b_wide = b.to(wide);
  const int64_t rows = weight.size(0);
  const int64_t at_once = wide == weight.scalar_type() ? rows : converted_rows(weight);
  auto squares = at::empty({rows}, weight.options().dtype(wide));
  auto product = at::empty({rows, a.size(0)}, squares.options());  // W A^T
  for (int64_t row = 0; row < rows; row += at_once) {
    const int64_t count = std::min(at_once, rows - row);
    const auto values = weight.narrow(0, row, count).to(wide);
    auto squares_part = squares.narrow(0, row, count), product_part = product.narrow(0, row, count);
    at::linalg_vector_norm_out(squares_part, values, 2, at::IntArrayRef{1});
    at::mm_out(product_part, values, a_wide.t());
  }
  squares.square_();
  // <w, BA> = <B, W A^T> and |BA|^2 = <B A A^T, B>, by rows.
  product.mul_(2 * scale).add_(at::mm(b_wide, at::mm(a_wide, a_wide.t())), scale * scale);
  constexpr double smallest = 1e-30;  // a row of zeros has magnitude 0, and keeps it
  return squares.add_(product.mul_(b_wide).sum(1)).clamp_min_(smallest).sqrt_();
}

}  // namespace runner
