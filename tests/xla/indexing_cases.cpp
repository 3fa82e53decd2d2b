// Uses of operators that read and write by index, and of convolutions and pooling.
#include "tests/xla/operator_cases.hpp"

namespace runner::testing {

namespace {

using torch::indexing::Slice;
using Indices = c10::List<std::optional<torch::Tensor>>;

torch::Tensor list(const Operands& in, const std::vector<int64_t>& numbers) {
  auto places = torch::zeros({std::ssize(numbers)}, in.n.options());
  for (size_t i = 0; i < numbers.size(); ++i) places[static_cast<int64_t>(i)].fill_(numbers[i]);
  return places;
}

}  // namespace

std::vector<OperatorCase> indexing_cases() {
  return {
      {"aten::embedding",
       [](const Operands& in) -> Tensors {
         return {at::embedding(in.b, in.ids), at::embedding(in.b, in.ids, 2), at::embedding(in.b.t(), in.ids[0]),
                 at::embedding(in.b, in.ids.to(torch::kInt32)), at::embedding(in.b, in.ids.narrow(1, 0, 0))};
       },
       true},
      {"aten::embedding_dense_backward",
       [](const Operands& in) -> Tensors {
         const auto gradient = in.x.detach().select(2, 0).unsqueeze(-1) * in.row.detach();
         return {at::embedding_dense_backward(gradient, in.ids, 6, -1, false),
                 at::embedding_dense_backward(gradient, in.ids, 6, 3, false)};
       },
       true},
      {"aten::index_select",
       [](const Operands& in) -> Tensors {
         return {at::index_select(in.x, 1, list(in, {2, 0, 2, 1})), at::index_select(in.n, -1, list(in, {3})),
                 at::index_select(in.x, 0, in.ids[0][0].remainder(2)), at::index_select(in.x, 2, list(in, {}))};
       },
       true},
      {"aten::index_add",
       [](const Operands& in) -> Tensors {
         auto counts = torch::zeros({4}, in.x.options().requires_grad(false));
         counts.index_add_(0, in.ids.flatten(), in.x.detach().select(2, 0).flatten());
         return {at::index_add(in.x, 1, list(in, {2, 0, 2, 1}), at::cat({in.y, in.y.narrow(1, 0, 1)}, 1)),
                 at::index_add(in.x, 2, list(in, {1, 1}), in.y.narrow(2, 1, 2), 0.5), counts,
                 at::index_add(in.n, 0, list(in, {1, 1}), in.m)};
       },
       true},
      {"aten::index_copy",
       [](const Operands& in) -> Tensors {
         return {at::index_copy(in.x, 1, list(in, {2, 0}), in.y.narrow(1, 0, 2)),
                 in.x.clone().index_copy_(-1, list(in, {3}), in.y.narrow(2, 0, 1))};
       }},
      {"aten::index_fill",
       [](const Operands& in) -> Tensors {
         return {in.x.index_fill(1, list(in, {2, 0}), 0.7), in.n.clone().index_fill_(2, list(in, {1}), 9),
                 in.x.index_fill(0, list(in, {1}), in.row.detach()[1])};
       }},
      {"aten::index.Tensor",
       [](const Operands& in) -> Tensors {
         const auto back = list(in, {-1, 0, -2});
         return {in.x.index({back.clamp_min(-2)}),
                 in.b.index({in.ids, in.ids}),
                 in.x.index({Slice(), back}),
                 in.x.index({Slice(), Slice(), back}),
                 in.x.index({Slice(), back, in.ids}),
                 in.x.index({in.ids.remainder(2), Slice(), in.ids}),
                 in.x.index({list(in, {0, 1}).unsqueeze(1), back}),
                 in.n.index({list(in, {1}), list(in, {2})}),
                 in.x.transpose(0, 2).index({back})};
       },
       true},
      {"aten::index_put",
       [](const Operands& in) -> Tensors {
         const auto back = list(in, {-1, 0, -1});
         return {in.b.index_put({in.ids[0]}, in.a.narrow(1, 0, 1)),
                 in.x.index_put(Indices{std::nullopt, list(in, {2, 0})}, in.y.narrow(1, 0, 2)),
                 in.x.index_put(Indices{list(in, {1}), std::nullopt, list(in, {3, 0})},
                                in.row.narrow(0, 0, 2).unsqueeze(1)),
                 in.x.index_put(Indices{std::nullopt, back}, in.y, /*accumulate=*/true),
                 in.x.index_put({in.mask}, in.row.detach()[1]),
                 in.x.index_put({in.mask.select(2, 0)}, in.row.detach()[1], /*accumulate=*/true),
                 in.n.clone().index_put_({list(in, {0, 1, 0})}, in.m[0], /*accumulate=*/true)};
       },
       true},
      {"aten::_index_put_impl",
       [](const Operands& in) -> Tensors {
         auto a = in.a.detach().clone();
         at::_index_put_impl_(a, {list(in, {-1, 0, -1})}, in.row.detach(), /*accumulate=*/true);
         return {a};
       }},
      {"aten::gather",
       [](const Operands& in) -> Tensors {
         const auto places = in.n.remainder(2);
         return {at::gather(in.x, 0, places),
                 at::gather(in.x, -1, in.ids.unsqueeze(-1)),
                 at::gather(in.x, 1, in.ids.narrow(0, 0, 1).narrow(1, 0, 2).unsqueeze(-1).remainder(3)),
                 at::gather(in.a, 1, in.ids.t()),
                 at::gather(in.row[0], 0, in.ids[0][0] * 0),
                 at::gather(in.x.transpose(0, 2), 2, places.transpose(0, 2))};
       },
       true},
      {"aten::scatter_add",
       [](const Operands& in) -> Tensors {
         return {at::scatter_add(in.x, 2, in.ids.unsqueeze(-1).expand({2, 3, 2}), in.y.narrow(2, 0, 2)),
                 at::scatter_add(in.x, 0, in.n.remainder(2).narrow(1, 0, 2), in.y.detach()),
                 in.a.clone().scatter_add_(1, in.ids.t(), in.b.narrow(0, 0, 3).narrow(1, 0, 2)),
                 at::scatter_add(in.n, 1, in.n.remainder(3), in.m)};
       },
       true},
      {"aten::scatter.src",
       [](const Operands& in) -> Tensors {
         return {at::scatter(in.x, 1, list(in, {2, 0}).view({1, 2, 1}).expand({2, 2, 4}), in.y.narrow(1, 0, 2)),
                 in.a.clone().scatter_(1, list(in, {3, 1}).expand({3, 2}), in.b.detach().narrow(0, 0, 3))};
       }},
      {"aten::scatter.value",
       [](const Operands& in) -> Tensors {
         return {at::scatter(in.x, 2, in.ids.unsqueeze(-1), 0.3), at::scatter(in.n, 2, in.ids.unsqueeze(-1), 77),
                 torch::zeros({2, 3, 4}, in.x.options().requires_grad(false)).scatter_(2, in.ids.unsqueeze(-1), 1)};
       }},
  };
}

std::vector<OperatorCase> image_cases() {
  return {
      {"aten::convolution",
       [](const Operands& in) -> Tensors {
         const auto wide = at::cat({in.kernel, in.kernel.flip(0)}, 1),
                    bias = in.b.narrow(1, 0, 1).expand({4, 2}).reshape({8}).narrow(0, 0, 6);
         return {at::conv2d(in.image, wide, bias),
                 at::conv2d(in.image, wide, {}, 2, {1, 0}),
                 at::conv2d(in.image, wide, {}, {3, 2}, 2, {2, 3}),
                 at::conv2d(in.image, in.kernel, bias, 1, {1, 1}, 1, /*groups=*/2),
                 at::conv2d(in.image, in.kernel, {}, 2, 1, 2, /*groups=*/2),
                 at::conv2d(in.image, in.kernel.narrow(0, 0, 4).narrow(1, 0, 1), {}, 1, 1, 1, /*groups=*/4),
                 at::conv2d(in.image, wide.narrow(2, 0, 1).narrow(3, 0, 1), {}, 2),
                 at::conv1d(in.image.select(3, 0), wide.select(3, 0), bias, 2, 1),
                 at::conv2d(in.image.transpose(2, 3), wide, {}, 4, 1)};
       },
       true},
      {"aten::convolution_backward",
       [](const Operands& in) -> Tensors {
         const auto x = in.image.detach(), weight = in.kernel.detach();
         const auto gradient = at::conv2d(x, weight, {}, 2, 1, 1, 2).flip(0);
         const auto [of_x, of_weight, of_bias] = at::convolution_backward(
             gradient, x, weight, at::IntArrayRef{6}, {2, 2}, {1, 1}, {1, 1}, false, {0, 0}, 2, {true, true, true});
         return {of_x, of_weight, of_bias};
       }},
      {"aten::max_pool2d_with_indices",
       [](const Operands& in) -> Tensors {
         const auto ties = (in.image.detach() * 2).round();
         const auto [values, places] = at::max_pool2d_with_indices(ties, {3, 3}, {2, 2}, {1, 1});
         const auto [spread, spread_places] = at::max_pool2d_with_indices(in.image, {2, 2}, {1, 2}, {1, 1}, {3, 2});
         const auto nothing = at::full({1, 4, 4}, -INFINITY, in.x.options().requires_grad(false));
         const auto [none, none_places] = at::max_pool2d_with_indices(nothing, {2, 2}, {1, 1}, {1, 1});
         auto broken = in.image.detach().clone();
         broken.select(0, 0).select(0, 1).select(0, 2).fill_(NAN);
         return {values,
                 places,
                 spread,
                 spread_places,
                 none,
                 none_places,
                 at::max_pool2d(in.image, 3, 2, 1),
                 at::max_pool2d(in.image, 2, {}, 0, 1, /*ceil_mode=*/true),
                 at::max_pool2d(broken, 2)};
       },
       true},
      {"aten::max_pool2d_with_indices_backward",
       [](const Operands& in) -> Tensors {
         const auto x = in.image.detach();
         const auto [values, places] = at::max_pool2d_with_indices(x, {3, 3}, {1, 1}, {1, 1});
         return {at::max_pool2d_with_indices_backward(values, x, {3, 3}, {1, 1}, {1, 1}, {1, 1}, false, places)};
       }},
      {"aten::_adaptive_avg_pool2d",
       [](const Operands& in) -> Tensors {
         return {at::adaptive_avg_pool2d(in.image, {7, 2}), at::adaptive_avg_pool2d(in.image[0], {1, 3}),
                 at::adaptive_avg_pool2d(in.image, {1, 1})};
       }},
      {"aten::_adaptive_avg_pool2d_backward",
       [](const Operands& in) -> Tensors {
         const auto x = in.image.detach();
         return {at::_adaptive_avg_pool2d_backward(at::_adaptive_avg_pool2d(x, {7, 3}), x)};
       }},
  };
}

}  // namespace runner::testing
