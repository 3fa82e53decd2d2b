// Uses of products, reductions, softmax, losses and norms.
#include "tests/xla/operator_cases.hpp"

namespace runner::testing {

namespace {

/// Elements of which several are equal.
torch::Tensor with_ties(const Operands& in) { return (in.x.detach() * 1.5).round(); }

/// Rows in which some elements, or all, are minus infinity.
torch::Tensor hidden_scores(const Operands& in) {
  auto scores = in.x.masked_fill(in.mask, -INFINITY);
  return scores.index_fill(1, torch::ones({1}, in.n.options()), -INFINITY);
}

torch::Tensor classes(const Operands& in) {
  return in.ids.select(0, 0).masked_fill(in.mask.select(0, 0).select(1, 0), -100);
}

}  // namespace

std::vector<OperatorCase> product_cases() {
  return {
      {"aten::mm",
       [](const Operands& in) -> Tensors {
         auto out = torch::empty({3, 5}, in.a.options().requires_grad(false));
         at::mm_out(out, in.a.detach(), in.b.detach());
         return {at::mm(in.a, in.b),
                 at::mm(in.b.t(), in.a.t()),
                 at::mm(in.a.slice(1, 0, 4, 2), in.b.narrow(0, 1, 2)),
                 at::mm(in.n[0], in.m[1].t()),
                 at::mm(in.a.narrow(1, 0, 0), in.b.narrow(0, 0, 0)),
                 at::mm(in.row.expand({3, 4}), in.b),
                 out};
       },
       true},
      {"aten::bmm",
       [](const Operands& in) -> Tensors {
         return {at::bmm(in.x, in.y.transpose(1, 2)), at::bmm(in.x.transpose(1, 2), in.y),
                 at::bmm(in.x, in.b.expand({2, 4, 5}))};
       },
       true},
      {"aten::mv",
       [](const Operands& in) -> Tensors {
         return {at::mv(in.a, in.row), at::mv(in.b.t(), in.row)};
       },
       true},
      {"aten::dot", [](const Operands& in) -> Tensors { return {at::dot(in.row, in.a[1])}; }},
      {"aten::addmm",
       [](const Operands& in) -> Tensors {
         const auto bias = in.b[0];
         return {at::addmm(bias, in.a, in.b), at::addmm(bias, in.a, in.b, 0.5, -2),
                 at::addmm(torch::full({5}, NAN, in.a.options().requires_grad(false)), in.a, in.b, 0),
                 at::linear(in.x, in.b.t(), bias), at::mm(in.a, in.b).addmm_(in.a, in.b, 1, 0.3)};
       },
       true},
      {"aten::baddbmm",
       [](const Operands& in) -> Tensors {
         return {at::baddbmm(in.column.unsqueeze(0), in.x, in.y.transpose(1, 2), 0.5, 2)};
       }},
      {"aten::addmv",
       [](const Operands& in) -> Tensors { return {at::addmv(in.column.squeeze(1), in.a, in.row, 2, 3)}; }},
  };
}

std::vector<OperatorCase> reduction_cases() {
  return {
      {"aten::sum",
       [](const Operands& in) -> Tensors {
         return {in.x.sum(),
                 in.x.sum(1),
                 in.x.sum(at::IntArrayRef{0, -1}, true),
                 in.mask.sum(),
                 in.mask.sum(2),
                 in.n.sum(0),
                 in.few.sum(),
                 in.n.sum({1}, false, torch::kFloat64),
                 in.x.narrow(1, 0, 0).sum(1),
                 in.x.transpose(0, 2).sum(1),
                 in.row[0].sum(),
                 in.x.sum(at::IntArrayRef{}),
                 in.row.expand({500, 4}).sum(0)};
       },
       true},
      {"aten::mean",
       [](const Operands& in) -> Tensors {
         return {in.x.mean(),
                 in.x.mean(-1),
                 in.x.mean(at::IntArrayRef{0, 2}, true),
                 in.n.mean(torch::kFloat64),
                 in.x.mean(1, false, torch::kFloat64),
                 in.x.narrow(1, 0, 0).mean(1),
                 in.mask.mean(1, true, torch::kFloat32)};
       },
       true},
      {"aten::amax",
       [](const Operands& in) -> Tensors {
         return {in.x.amax(1),   in.x.amax({0, 2}, true), in.n.amax(0), with_ties(in).amax(2), in.mask.amax(1),
                 in.few.amax(0), in.special.amax(0),      in.x.amax(),  (in.n - 100).amax(1)};
       },
       true},
      {"aten::amin",
       [](const Operands& in) -> Tensors {
         return {in.x.amin(1),
                 in.n.amin({0, 1}),
                 in.mask.amin(1),
                 in.special.amin(0),
                 in.x.amin({-1}, true),
                 (in.n + 100).amin(1),
                 at::full({2, 2}, INT64_MIN, in.n.options()).amin(0)};
       }},
      {"aten::max.",
       [](const Operands& in) -> Tensors {
         return {in.x.max(), in.n.max(), in.mask.max()};
       }},
      {"aten::min.",
       [](const Operands& in) -> Tensors {
         return {in.x.min(), in.n.min(), in.special.min()};
       }},
      {"aten::max.dim",
       [](const Operands& in) -> Tensors {
         const auto [values, places] = in.x.max(1);
         const auto [whole, whole_places] = in.n.max(-1, true);
         const auto [special, special_place] = in.special.max(0);
         return {values, places, whole, whole_places, special, special_place};
       }},
      {"aten::min.dim",
       [](const Operands& in) -> Tensors {
         const auto [values, places] = in.x.min(2, true);
         const auto [whole, whole_places] = in.n.min(0);
         return {values, places, whole, whole_places};
       }},
      {"aten::argmax",
       [](const Operands& in) -> Tensors {
         return {in.x.argmax(1),
                 in.x.argmax(),
                 with_ties(in).argmax(2),
                 with_ties(in).argmax(0, true),
                 in.special.argmax(),
                 in.n.argmax(-1),
                 in.x.transpose(0, 1).argmax(0),
                 torch::zeros({2, 5}, in.x.options()).detach().argmax(1)};
       },
       true},
      {"aten::argmin",
       [](const Operands& in) -> Tensors {
         return {in.x.argmin(1), with_ties(in).argmin(2), in.n.argmin()};
       }},
      {"aten::topk",
       [](const Operands& in) -> Tensors {
         const auto [values, places] = in.x.topk(3);
         const auto [small, small_places] = in.x.topk(2, 1, /*largest=*/false);
         const auto [whole, whole_places] = (in.n * 100 + at::arange(4, in.n.options())).topk(2);
         return {values, places, small, small_places, whole, whole_places};
       },
       true},
      {"aten::all",
       [](const Operands& in) -> Tensors {
         return {in.mask.all(), in.mask.all(1), in.n.all(-1, true), in.mask.narrow(1, 0, 0).all(1),
                 in.mask.gt(-1).all()};
       }},
      {"aten::any",
       [](const Operands& in) -> Tensors {
         return {in.mask.any(), in.mask.any(1), in.n.any(0), in.mask.narrow(1, 0, 0).any(1), in.special.any()};
       }},
      {"aten::cumsum",
       [](const Operands& in) -> Tensors {
         return {in.x.cumsum(1),
                 in.n.cumsum(-1),
                 in.mask.cumsum(0),
                 in.row[0].cumsum(0),
                 in.few.cumsum(0),
                 in.n.clone().cumsum_(2),
                 torch::ones({100}, in.n.options()).cumsum(0),
                 in.x.narrow(1, 0, 0).cumsum(1)};
       }},
      {"aten::linalg_vector_norm",
       [](const Operands& in) -> Tensors {
         auto out = torch::empty({2, 3}, in.x.options().requires_grad(false));
         at::linalg_vector_norm_out(out, in.x.detach(), 2, at::IntArrayRef{2});
         return {at::linalg_vector_norm(in.x), at::linalg_vector_norm(in.x, 2, at::IntArrayRef{-1}, true),
                 at::linalg_vector_norm(in.x, 2, at::IntArrayRef{0, 1}, false, torch::kFloat64), out};
       },
       true},
      {"aten::_softmax",
       [](const Operands& in) -> Tensors {
         return {at::softmax(in.x, 0),
                 at::softmax(in.x, -1),
                 at::softmax(in.x * 100, 1),
                 at::softmax(in.row[0], 0),
                 at::softmax(hidden_scores(in).detach(), 2),
                 at::softmax(in.x, 1, torch::kFloat64),
                 at::softmax(in.x.transpose(0, 2), 0)};
       },
       true},
      {"aten::_safe_softmax",
       [](const Operands& in) -> Tensors {
         return {at::_safe_softmax(hidden_scores(in), -1), at::_safe_softmax(in.x, 0),
                 at::_safe_softmax(in.x, 1, torch::kFloat64)};
       }},
      {"aten::_log_softmax",
       [](const Operands& in) -> Tensors {
         return {at::log_softmax(in.x, 0), at::log_softmax(in.x, -1), at::log_softmax(in.x * 100, 1),
                 at::log_softmax(in.row[0], 0), at::log_softmax(in.x, 1, torch::kFloat64)};
       },
       true},
      {"aten::_softmax_backward_data",
       [](const Operands& in) -> Tensors {
         return {at::_softmax_backward_data(in.x.detach(), in.y.detach(), 0, in.x.scalar_type()),
                 at::_softmax_backward_data(in.x.detach(), in.y.detach(), -1, in.x.scalar_type())};
       }},
      {"aten::_log_softmax_backward_data",
       [](const Operands& in) -> Tensors {
         return {at::_log_softmax_backward_data(in.x.detach(), in.y.detach(), 1, in.x.scalar_type())};
       }},
  };
}

std::vector<OperatorCase> loss_cases() {
  return {
      {"aten::nll_loss_forward",
       [](const Operands& in) -> Tensors {
         const auto targets = classes(in), weights = in.positive.detach().select(0, 0).select(0, 0);
         return {at::nll_loss(in.a, targets),
                 at::nll_loss(in.a, targets, {}, at::Reduction::Sum),
                 at::nll_loss(in.a, targets, {}, at::Reduction::None),
                 at::nll_loss(in.a, targets, weights),
                 at::nll_loss(in.a, targets.clamp_min(0), weights, at::Reduction::Sum, 2),
                 at::nll_loss(in.row, in.ids[1][2]),
                 at::nll_loss(
                     in.a.masked_fill(at::arange(4, in.n.options()).eq(targets.unsqueeze(1)).logical_not(), -INFINITY),
                     targets),
                 at::nll_loss(in.a, torch::full_like(targets, -100)),
                 at::cross_entropy_loss(in.a, targets, {}, at::Reduction::Sum, -100, 0.1)};
       },
       true},
      {"aten::nll_loss_backward",
       [](const Operands& in) -> Tensors {
         const auto targets = classes(in), logs = in.a.detach(), one = torch::ones({}, logs.options());
         const auto total = torch::full({}, 2.5, logs.options());
         return {at::nll_loss_backward(one, logs, targets, {}, at::Reduction::Mean, -100, total),
                 at::nll_loss_backward(logs.select(1, 0), logs, targets, {}, at::Reduction::None, -100, total)};
       }},
      {"aten::mse_loss",
       [](const Operands& in) -> Tensors {
         return {at::mse_loss(in.x, in.y), at::mse_loss(in.x, in.y, at::Reduction::Sum),
                 at::mse_loss(in.x, in.y, at::Reduction::None)};
       },
       true},
      {"aten::mse_loss_backward",
       [](const Operands& in) -> Tensors {
         return {at::mse_loss_backward(in.y.detach(), in.x.detach(), in.positive.detach(), at::Reduction::None)};
       }},
      {"aten::huber_loss",
       [](const Operands& in) -> Tensors {
         return {at::huber_loss(in.x, in.y.detach(), at::Reduction::Mean, 0.5),
                 at::huber_loss(in.x, in.y.detach(), at::Reduction::Sum, 1),
                 at::huber_loss(in.x, in.y.detach(), at::Reduction::None, 0.7)};
       }},
      {"aten::huber_loss_backward",
       [](const Operands& in) -> Tensors {
         return {at::huber_loss_backward(in.y.detach(), in.x.detach(), in.positive.detach(), at::Reduction::None, 0.5)};
       }},
  };
}

std::vector<OperatorCase> norm_cases() {
  return {
      {"aten::native_layer_norm",
       [](const Operands& in) -> Tensors {
         const auto [y, mean, scale] = at::native_layer_norm(in.x, {4}, in.row, in.b.select(1, 0), 1e-5);
         return {y, at::layer_norm(in.x, {3, 4}, in.a), at::layer_norm(in.x.transpose(0, 1), {2, 4}),
                 at::layer_norm(in.row, {4}, in.row)};
       },
       true},
      {"aten::native_layer_norm_backward",
       [](const Operands& in) -> Tensors {
         const auto x = in.x.detach(), weight = in.row.detach();
         const auto [y, mean, scale] = at::native_layer_norm(x, {4}, weight, {}, 1e-3);
         const auto [of_x, of_weight, of_bias] =
             at::native_layer_norm_backward(in.y.detach(), x, {4}, mean, scale, weight, weight, {true, true, true});
         return {of_x, of_weight, of_bias};
       }},
      {"aten::native_batch_norm",
       [](const Operands& in) -> Tensors {
         const auto mean = in.b.detach().select(1, 1), variance = in.positive.detach().select(0, 0).select(0, 0);
         const auto [y, batch_mean, scale] =
             at::native_batch_norm(in.image, in.row, in.b.select(1, 0), {}, {}, /*training=*/true, 0, 1e-5);
         const auto whole = std::get<0>(at::native_batch_norm(in.image, in.row, in.b.select(1, 0), mean, variance,
                                                              /*training=*/false, 0, 1e-5));
         return {y, batch_mean.detach(), scale.detach(), whole,
                 std::get<0>(at::native_batch_norm(in.image, {}, {}, {}, {}, true, 0, 1e-3))};
       },
       true},
      {"aten::native_batch_norm_backward",
       [](const Operands& in) -> Tensors {
         const auto x = in.image.detach(), weight = in.row.detach();
         const auto [y, mean, scale] = at::native_batch_norm(x, weight, {}, {}, {}, true, 0, 1e-5);
         const auto [of_x, of_weight, of_bias] = at::native_batch_norm_backward(
             x.flip(0), x, weight, {}, {}, mean, scale, /*train=*/true, 1e-5, {true, true, true});
         return {of_x, of_weight, of_bias};
       }},
  };
}

}  // namespace runner::testing
