// Uses of operators that compute each element from the same element of the operands, and of activations.
#include "tests/xla/operator_cases.hpp"

namespace runner::testing {

namespace {

using Case = OperatorCase;

/// A writable copy.
torch::Tensor copy_of(const torch::Tensor& a) { return a.clone(); }
/// Memory for the results of operators that write to an argument.
torch::Tensor room_like(const torch::Tensor& a) { return torch::empty_like(a.detach()); }

std::vector<Case> arithmetic() {
  return {
      {"aten::add",
       [](const Operands& in) -> Tensors {
         auto out = room_like(in.x), flipped = copy_of(in.x);
         at::add_out(out, in.x.detach(), in.y.detach(), 2);
         flipped.transpose(0, 2).add_(in.y.transpose(0, 2), -1);
         return {in.x + in.y,
                 in.x + in.row,
                 in.column + in.row,
                 in.x + 2.5,
                 in.x + in.n,
                 in.n + 2,
                 in.n + 0.5,
                 in.n + in.few,
                 in.mask + in.mask,
                 in.n + int64_t{9007199254740993},
                 at::add(in.x, in.y, -0.5),
                 at::add(in.n, in.m, 3),
                 in.x.transpose(0, 2) + in.y.transpose(0, 2),
                 in.x.slice(2, 1, 4, 2) + in.column,
                 in.row.expand({3, 4}) + in.a,
                 in.x.narrow(0, 1, 0) + in.row,
                 in.x.select(2, 1).diagonal() + in.x[0][0][0],
                 copy_of(in.x).add_(in.row),
                 out,
                 flipped};
       },
       true},
      {"aten::sub",
       [](const Operands& in) -> Tensors {
         return {in.x - in.row, in.n - in.m, at::sub(in.x, in.y, 0.25), in.n - 1.5, copy_of(in.x).sub_(in.y)};
       },
       true},
      {"aten::rsub",
       [](const Operands& in) -> Tensors {
         return {at::rsub(in.x, in.y, 2), at::rsub(in.n, 5)};
       }},
      {"aten::mul",
       [](const Operands& in) -> Tensors {
         return {in.x * in.row,    in.x * 0.3,          in.n * in.m,
                 in.n * 3,         in.mask * in.x,      in.mask * in.mask,
                 in.x * in.mask,   in.column * in.row,  copy_of(in.x).mul_(in.column),
                 in.special * 2.0, in.few * in.few * 3, copy_of(in.x).permute({1, 2, 0}).mul_(2)};
       },
       true},
      {"aten::maximum",
       [](const Operands& in) -> Tensors {
         return {at::maximum(in.x, in.row), at::maximum(in.n, in.m), at::maximum(in.special, in.special.flip(0)),
                 at::maximum(in.mask, in.mask.flip(0)), at::max(in.x, in.y)};
       }},
      {"aten::minimum",
       [](const Operands& in) -> Tensors {
         return {at::minimum(in.x, in.row), at::minimum(in.n, in.m), at::minimum(in.special, in.special.flip(0)),
                 at::minimum(in.mask, in.mask.flip(0))};
       }},
      {"aten::div",
       [](const Operands& in) -> Tensors {
         const auto tenths = in.n.to(in.x.scalar_type()) * 0.1;
         return {in.x / in.positive,
                 in.n / in.m,
                 in.x / 3,
                 in.n / 2,
                 1 / in.positive,
                 copy_of(in.x).div_(in.row),
                 in.special / 0.0,
                 at::div(in.n, in.m, "floor"),
                 at::div(in.n, in.m, "trunc"),
                 at::div(in.x, in.y, "floor"),
                 at::div(in.x, in.y, "trunc"),
                 at::div(in.n, -3, "floor"),
                 at::div(in.n, 2.5, "trunc"),
                 at::div(tenths, 0.1, "floor"),
                 at::div(tenths, -0.1, "floor"),
                 at::div(in.special, 0.0, "floor"),
                 at::div(in.special, 2.0, "floor"),
                 copy_of(in.x).div_(in.row, "trunc")};
       },
       true},
      {"aten::floor_divide",
       [](const Operands& in) -> Tensors {
         return {at::floor_divide(in.n, in.m), at::floor_divide(in.x.detach(), in.y.detach()),
                 at::floor_divide(in.n, 4), at::floor_divide(in.n, -2.5), copy_of(in.n).floor_divide_(in.m)};
       }},
      {"aten::remainder",
       [](const Operands& in) -> Tensors {
         const auto tiny = torch::full({2}, -1e-20, in.x.options().requires_grad(false));
         return {at::remainder(in.n, in.m),    at::remainder(in.x, in.y),
                 at::remainder(in.x, 0.7),     at::remainder(in.n, -4),
                 at::remainder(in.special, 2), at::remainder(tiny, 1),
                 at::remainder(7, in.m),       at::remainder(in.x.detach(), INFINITY),
                 copy_of(in.n).remainder_(5)};
       }},
      {"aten::fmod",
       [](const Operands& in) -> Tensors {
         return {at::fmod(in.n, in.m), at::fmod(in.x, in.y), at::fmod(in.x, 0.7), at::fmod(in.special, 2)};
       }},
      {"aten::pow",
       [](const Operands& in) -> Tensors {
         const auto base = in.x.detach();
         return {in.x.pow(2),           in.x.pow(3),          in.positive.pow(0.5), in.positive.pow(-0.5),
                 in.positive.pow(-1),   in.positive.pow(1.7), base.pow(5),          base.pow(0),
                 base.pow(1.5),         base.pow(in.n),       in.special.pow(0),    in.special.pow(3),
                 in.positive.pow(in.y), at::pow(2, in.x),     at::pow(-2, in.m),    in.n.pow(3),
                 in.n.pow(4),           in.n.pow(0.5),        in.m.pow(-2.0),       in.n.pow(in.m.abs()),
                 copy_of(in.x).pow_(2), in.x.square()};
       },
       true},
      {"aten::bitwise_and",
       [](const Operands& in) -> Tensors {
         return {in.n & in.m, in.mask & in.mask.flip(0), in.n & 5, in.n & in.mask};
       }},
      {"aten::bitwise_or",
       [](const Operands& in) -> Tensors {
         return {in.n | in.m, in.mask | in.mask.flip(0), copy_of(in.mask).bitwise_or_(in.n.gt(0))};
       }},
      {"aten::bitwise_xor",
       [](const Operands& in) -> Tensors {
         return {in.n ^ in.m, in.mask ^ in.mask.flip(0)};
       }},
      {"aten::addcmul",
       [](const Operands& in) -> Tensors {
         return {at::addcmul(in.x, in.row, in.y, 0.3), at::addcmul(in.a, in.column, in.row),
                 copy_of(in.x).addcmul_(in.y, in.row, -1)};
       },
       true},
      {"aten::addcdiv",
       [](const Operands& in) -> Tensors {
         return {at::addcdiv(in.x, in.row, in.positive, 0.3), copy_of(in.x).addcdiv_(in.y, in.positive)};
       },
       true},
      {"aten::lerp",
       [](const Operands& in) -> Tensors {
         return {at::lerp(in.x, in.y, 0.25), at::lerp(in.x, in.y, 0.75), at::lerp(in.x, in.y, in.positive),
                 copy_of(in.x).lerp_(in.y, 0.1)};
       }},
      {"aten::clamp",
       [](const Operands& in) -> Tensors {
         return {at::clamp(in.x, -0.5, 0.7),      at::clamp(in.x, in.row, in.y),      at::clamp(in.n, -2, 3),
                 at::clamp(in.special, -1, 1),    at::clamp(in.n, -1.5, 2.5),         at::clamp(in.x, 2, 1),
                 copy_of(in.x).clamp_(-0.1, 0.1), at::clamp(in.x, std::nullopt, 0.5), at::clamp(in.x, in.row)};
       },
       true},
      {"aten::clamp_min",
       [](const Operands& in) -> Tensors {
         return {at::clamp_min(in.x, 0.1), at::clamp_min(in.x, in.row), at::clamp_min(in.special, 0),
                 at::clamp_min(in.n, 0), copy_of(in.x).clamp_min_(0)};
       }},
      {"aten::clamp_max",
       [](const Operands& in) -> Tensors {
         return {at::clamp_max(in.x, 0.1), at::clamp_max(in.x, in.row), at::clamp_max(in.special, 0),
                 at::clamp_max(in.n, 1)};
       }},
      {"aten::nan_to_num",
       [](const Operands& in) -> Tensors {
         return {in.special.nan_to_num(), in.special.nan_to_num(0.5, 7, -7), in.n.nan_to_num(), in.x.nan_to_num(0)};
       },
       true},
      {"aten::where.self",
       [](const Operands& in) -> Tensors {
         return {at::where(in.mask, in.x, in.y),
                 at::where(in.mask, in.row, in.column),
                 at::where(in.mask, in.x, 2),
                 at::where(in.mask, in.n, 0.5),
                 at::where(in.mask, 1, 0),
                 at::where(in.mask, in.n, in.x),
                 at::where(in.mask.select(0, 1), in.x, in.row)};
       },
       true},
      {"aten::masked_fill",
       [](const Operands& in) -> Tensors {
         return {in.x.masked_fill(in.mask, -INFINITY),
                 in.x.masked_fill(in.mask, in.row.select(0, 1)),
                 copy_of(in.x).masked_fill_(in.mask.select(0, 0), 2),
                 in.n.masked_fill(in.mask, 7),
                 in.row.masked_fill(in.mask, 1),
                 copy_of(in.x).transpose(0, 1).masked_fill_(in.mask.transpose(0, 1), 0)};
       },
       true},
  };
}

template <at::Tensor (at::Tensor::*of_tensor)(const at::Tensor&) const,
          at::Tensor (at::Tensor::*of_number)(const at::Scalar&) const>
Tensors comparisons(const Operands& in) {
  const auto whole = in.x.detach().round();
  return {(in.x.*of_tensor)(in.row),
          (whole.*of_tensor)(in.y.detach().round()),
          (in.n.*of_tensor)(in.m),
          (in.n.*of_number)(2),
          (in.n.*of_number)(0.5),
          (in.x.*of_number)(0.25),
          (in.special.*of_tensor)(in.special.flip(0)),
          (in.special.*of_number)(0),
          (in.mask.*of_tensor)(in.mask.flip(0)),
          (in.n.*of_tensor)(in.x)};
}

std::vector<Case> logic() {
  return {
      {"aten::eq", comparisons<&at::Tensor::eq, &at::Tensor::eq>, true},
      {"aten::ne", comparisons<&at::Tensor::ne, &at::Tensor::ne>},
      {"aten::lt", comparisons<&at::Tensor::lt, &at::Tensor::lt>, true},
      {"aten::le", comparisons<&at::Tensor::le, &at::Tensor::le>},
      {"aten::gt", comparisons<&at::Tensor::gt, &at::Tensor::gt>},
      {"aten::ge", comparisons<&at::Tensor::ge, &at::Tensor::ge>},
      {"aten::logical_and",
       [](const Operands& in) -> Tensors {
         return {in.mask.logical_and(in.n), in.x.logical_and(in.special.select(0, 3)),
                 copy_of(in.mask).logical_and_(in.n.gt(0))};
       }},
      {"aten::logical_or",
       [](const Operands& in) -> Tensors {
         return {in.mask.logical_or(in.n.select(0, 0)), copy_of(in.n).logical_or_(in.mask)};
       }},
      {"aten::logical_xor", [](const Operands& in) -> Tensors { return {in.mask.logical_xor(in.n)}; }},
      {"aten::logical_not",
       [](const Operands& in) -> Tensors {
         return {in.mask.logical_not(), in.n.logical_not(), in.special.logical_not(), copy_of(in.mask).logical_not_()};
       }},
      {"aten::isnan",
       [](const Operands& in) -> Tensors {
         return {in.special.isnan(), in.n.isnan(), in.special.isfinite(), in.special.isinf()};
       }},
      {"aten::isposinf",
       [](const Operands& in) -> Tensors {
         return {in.special.isposinf(), in.n.isposinf()};
       }},
      {"aten::isneginf",
       [](const Operands& in) -> Tensors {
         return {in.special.isneginf(), in.n.isneginf()};
       }},
  };
}

template <at::Tensor (at::Tensor::*function)() const>
Tensors of_all_numbers(const Operands& in) {
  return {(in.x.*function)(), (in.special.*function)(), (in.n.*function)(), (in.x.transpose(0, 2).*function)()};
}

template <at::Tensor (at::Tensor::*function)() const>
Tensors of_positive_numbers(const Operands& in) {
  return {(in.positive.*function)(), (in.special.*function)(), (in.n.abs().*function)()};
}

template <at::Tensor (at::Tensor::*function)() const, at::Tensor& (at::Tensor::*in_place)() const>
Tensors rounding(const Operands& in) {
  auto changed = (in.x * 5).detach();
  (changed.*in_place)();
  return {((in.x * 5).*function)(), (in.special.*function)(), (in.n.*function)(), changed};
}

std::vector<Case> functions() {
  return {
      {"aten::exp", of_all_numbers<&at::Tensor::exp>, true},
      {"aten::expm1", of_all_numbers<&at::Tensor::expm1>},
      {"aten::log", of_positive_numbers<&at::Tensor::log>, true},
      {"aten::log1p", of_positive_numbers<&at::Tensor::log1p>},
      {"aten::tanh", of_all_numbers<&at::Tensor::tanh>, true},
      {"aten::sigmoid", of_all_numbers<&at::Tensor::sigmoid>, true},
      {"aten::rsqrt", of_positive_numbers<&at::Tensor::rsqrt>, true},
      {"aten::sqrt", of_positive_numbers<&at::Tensor::sqrt>},
      {"aten::neg",
       [](const Operands& in) -> Tensors {
         return {-in.x, -in.n, -in.special, copy_of(in.x).neg_()};
       }},
      {"aten::abs",
       [](const Operands& in) -> Tensors {
         return {in.x.abs(), in.n.abs(), in.special.abs()};
       }},
      {"aten::sign",
       [](const Operands& in) -> Tensors {
         return {in.x.sign(), in.n.sign(), in.special.sign(), in.mask.sign()};
       }},
      {"aten::sgn",
       [](const Operands& in) -> Tensors {
         return {in.x.detach().sgn(), in.n.sgn(), in.special.sgn()};
       }},
      {"aten::floor", rounding<&at::Tensor::floor, &at::Tensor::floor_>},
      {"aten::ceil", rounding<&at::Tensor::ceil, &at::Tensor::ceil_>},
      {"aten::trunc", rounding<&at::Tensor::trunc, &at::Tensor::trunc_>},
      {"aten::round",
       [](const Operands& in) -> Tensors {
         return {in.special.round(),     (in.x.detach() * 3).round(),     in.n.round(),
                 in.x.detach().round(1), (in.x.detach() * 100).round(-1), in.special.round(2)};
       }},
      {"aten::cos",
       [](const Operands& in) -> Tensors {
         return {in.x.cos(), in.n.cos(), (in.x * 30).cos()};
       },
       true},
      {"aten::sin",
       [](const Operands& in) -> Tensors {
         return {in.x.sin(), in.n.sin(), (in.x * 30).sin()};
       }},
      {"aten::erf", of_all_numbers<&at::Tensor::erf>, true},
      {"aten::bitwise_not",
       [](const Operands& in) -> Tensors {
         return {~in.mask, ~in.n};
       }},
      {"aten::reciprocal", of_positive_numbers<&at::Tensor::reciprocal>},
  };
}

}  // namespace

std::vector<OperatorCase> elementwise_cases() {
  auto all = arithmetic();
  for (auto* part : {&logic, &functions})
    for (auto& one : part()) all.push_back(one);
  return all;
}

std::vector<OperatorCase> activation_cases() {
  return {
      {"aten::relu",
       [](const Operands& in) -> Tensors {
         return {in.x.relu(), in.special.relu(), in.n.relu(), copy_of(in.x).relu_()};
       },
       true},
      {"aten::threshold_backward",
       [](const Operands& in) -> Tensors {
         return {at::threshold_backward(in.x.detach(), in.y.detach(), 0.1),
                 at::threshold_backward(torch::ones_like(in.special), in.special, 0)};
       }},
      {"aten::silu",
       [](const Operands& in) -> Tensors {
         return {at::silu(in.x), at::silu(in.special), at::silu(in.x.transpose(0, 1) * 2)};
       },
       true},
      {"aten::silu_backward",
       [](const Operands& in) -> Tensors { return {at::silu_backward(in.x.detach(), in.y.detach())}; }, true},
      {"aten::gelu",
       [](const Operands& in) -> Tensors {
         return {at::gelu(in.x), at::gelu(in.x * 2, "tanh")};
       },
       true},
      {"aten::gelu_backward",
       [](const Operands& in) -> Tensors {
         return {at::gelu_backward(in.x.detach(), in.y.detach()),
                 at::gelu_backward(in.x.detach(), in.y.detach(), "tanh")};
       },
       true},
      {"aten::tanh_backward",
       [](const Operands& in) -> Tensors { return {at::tanh_backward(in.x.detach(), in.y.detach())}; }, true},
      {"aten::sigmoid_backward",
       [](const Operands& in) -> Tensors { return {at::sigmoid_backward(in.x.detach(), in.y.detach())}; }, true},
      {"aten::log_sigmoid_forward",
       [](const Operands& in) -> Tensors {
         return {at::log_sigmoid(in.x), at::log_sigmoid(in.x * 100), at::log_sigmoid(in.special)};
       },
       true},
      {"aten::log_sigmoid_backward",
       [](const Operands& in) -> Tensors {
         const auto x = in.x.detach(), y = in.y.detach();
         return {at::log_sigmoid_backward(y, x, std::get<1>(at::log_sigmoid_forward(x)))};
       }},
  };
}

}  // namespace runner::testing
