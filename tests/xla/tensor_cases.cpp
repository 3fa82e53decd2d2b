// Uses of operators that make, copy and join tensors.
#include "runner/base/hash.hpp"
#include "runner/models/dropout.hpp"
#include "tests/xla/operator_cases.hpp"

namespace runner::testing {

namespace {

/// A tensor of the operands' device.
torch::TensorOptions options(const Operands& in, torch::ScalarType type) { return in.n.options().dtype(type); }

/// What is written to a new tensor without values.
torch::Tensor written(torch::Tensor a) {
  a.fill_(3);
  return a;
}

}  // namespace

std::vector<OperatorCase> new_tensor_cases() {
  return {
      {"aten::copy",
       [](const Operands& in) -> Tensors {
         auto whole = torch::empty_like(in.n), floats = in.x.detach().clone(), part = in.x.clone();
         whole.copy_(in.x.detach() * 7);
         floats.copy_(in.row.detach());
         part.select(2, 1).copy_(in.y.select(2, 3));
         return {whole, floats, part, at::copy(in.x.detach(), in.y.detach()),
                 torch::empty_like(in.mask).copy_(in.special[3])};
       }},
      {"aten::_to_copy",
       [](const Operands& in) -> Tensors {
         const auto large = in.x.detach() * 7.9, finite = in.special.nan_to_num(0, 3, -3);
         return {large.to(torch::kInt64),
                 large.to(torch::kInt32),
                 finite.to(torch::kBool),
                 in.n.to(torch::kBool),
                 in.n.to(torch::kFloat32),
                 in.mask.to(torch::kFloat64),
                 in.mask.to(torch::kInt64),
                 in.special.to(torch::kFloat32),
                 in.special.to(torch::kBool),
                 in.x.to(torch::kFloat32) * 2,
                 in.x.to(torch::kBFloat16).to(torch::kFloat64),
                 in.few.to(torch::kInt64),
                 in.image.contiguous(torch::MemoryFormat::ChannelsLast)};
       },
       true},
      {"aten::clone",
       [](const Operands& in) -> Tensors {
         return {in.x.clone(), in.x.transpose(0, 2).clone(), in.x.transpose(0, 2).contiguous(),
                 in.image.clone(torch::MemoryFormat::ChannelsLast), in.row.expand({3, 4}).clone()};
       }},
      {"aten::empty",
       [](const Operands& in) -> Tensors {
         return {written(at::empty({2, 3}, in.row.options()))};
       }},
      {"aten::empty_strided",
       [](const Operands& in) -> Tensors {
         return {written(at::empty_strided({2, 3}, {1, 2}, in.n.options()))};
       }},
      {"aten::empty_like", [](const Operands& in) -> Tensors { return {written(at::empty_like(in.x.detach()))}; }},
      {"aten::new_empty",
       [](const Operands& in) -> Tensors {
         return {written(in.n.new_empty({2, 2}))};
       }},
      {"aten::new_empty_strided",
       [](const Operands& in) -> Tensors {
         return {written(in.n.new_empty_strided({2, 2}, {1, 2}))};
       }},
      {"aten::fill",
       [](const Operands& in) -> Tensors {
         return {in.x.clone().fill_(0.3),          in.n.clone().fill_(int64_t{9007199254740993}),
                 in.mask.clone().fill_(2),         in.x.detach().clone().fill_(in.row.detach()[2]),
                 in.n.clone().fill_(-7.9),         at::fill(in.few, 3),
                 in.n.clone().fill_(INT64_MIN + 1)};
       }},
      {"aten::zero",
       [](const Operands& in) -> Tensors {
         auto part = in.x.clone();
         part.slice(2, 0, 4, 2).zero_();
         return {in.x.clone().zero_(), part};
       }},
      {"aten::zeros",
       [](const Operands& in) -> Tensors {
         return {at::zeros({2, 3}, in.n.options()), at::zeros({0}, in.n.options())};
       }},
      {"aten::zeros_like",
       [](const Operands& in) -> Tensors {
         return {at::zeros_like(in.x), at::zeros_like(in.mask)};
       }},
      {"aten::new_zeros", [](const Operands& in) -> Tensors { return {in.x.new_zeros({3})}; }},
      {"aten::ones",
       [](const Operands& in) -> Tensors {
         return {at::ones({2}, in.n.options()), at::ones({}, in.mask.options())};
       }},
      {"aten::ones_like", [](const Operands& in) -> Tensors { return {at::ones_like(in.x)}; }},
      {"aten::new_ones",
       [](const Operands& in) -> Tensors {
         return {in.x.new_ones({2, 2}), in.mask.new_ones({2})};
       }},
      {"aten::full",
       [](const Operands& in) -> Tensors {
         return {at::full({2}, int64_t{9007199254740993}, in.n.options()),
                 at::full({2}, 0.1, options(in, torch::kFloat32)), at::full({}, true, in.mask.options()),
                 at::full({2}, INFINITY, in.row.options().requires_grad(false))};
       }},
      {"aten::full_like",
       [](const Operands& in) -> Tensors {
         return {at::full_like(in.x, -0.7), at::full_like(in.n, 3)};
       }},
      {"aten::new_full", [](const Operands& in) -> Tensors { return {in.x.new_full({2}, 0.4)}; }},
      {"aten::scalar_tensor",
       [](const Operands& in) -> Tensors {
         return {at::scalar_tensor(2.5, in.row.options().requires_grad(false)),
                 at::scalar_tensor(int64_t{9007199254740993}, in.n.options())};
       }},
      {"aten::arange",
       [](const Operands& in) -> Tensors {
         const auto floats = options(in, torch::kFloat32), numbers = in.row.options().requires_grad(false);
         return {at::arange(7, in.n.options()),
                 at::arange(2, 11, 3, in.n.options()),
                 at::arange(5, -4, -2, in.n.options()),
                 at::arange(0, 1, 0.1, floats),
                 at::arange(0.3, 50, 0.1, floats),
                 at::arange(1, -1, -0.3, numbers),
                 at::arange(3, numbers),
                 at::arange(int64_t{9007199254740991}, int64_t{9007199254740997}, in.n.options()),
                 at::arange(4, options(in, torch::kInt32)),
                 at::arange(0, in.n.options())};
       },
       true},
  };
}

std::vector<OperatorCase> join_cases() {
  return {
      {"aten::cat",
       [](const Operands& in) -> Tensors {
         auto out = torch::empty({4, 3, 4}, in.x.options().requires_grad(false));
         at::cat_out(out, {in.x.detach(), in.y.detach()}, 0);
         return {at::cat({in.x, in.y}, 0),
                 at::cat({in.x, in.y, in.x}, -1),
                 at::cat({in.x, in.n}, 1),
                 at::cat({in.n, in.few.view({1, 1, 4}).expand({2, 1, 4})}, 1),
                 at::cat({in.x.transpose(0, 2), in.y.transpose(0, 2)}, 1),
                 at::cat({torch::empty({0}, in.x.options().requires_grad(false)), in.x}, 1),
                 at::cat({torch::empty({0}, in.n.options()), torch::empty({0}, in.n.options())}, 0),
                 at::cat({in.x.narrow(1, 0, 0), in.x}, 1),
                 at::cat({in.x}, 0),
                 at::cat({in.row, in.x.select(0, 0).select(0, 1)}),
                 out};
       },
       true},
      {"aten::stack",
       [](const Operands& in) -> Tensors {
         return {at::stack({in.x, in.y}, 0), at::stack({in.x, in.y}, -1), at::stack({in.row}, 1),
                 at::stack({in.row[0], in.row[2]})};
       }},
      {"aten::tril",
       [](const Operands& in) -> Tensors {
         return {in.x.tril(), in.x.tril(1), in.x.tril(-1), in.mask.tril(), in.n.tril(-7), in.x.clone().tril_(2)};
       }},
      {"aten::triu",
       [](const Operands& in) -> Tensors {
         return {in.x.triu(), in.x.triu(2), in.n.triu(-1)};
       }},
      {"aten::constant_pad_nd",
       [](const Operands& in) -> Tensors {
         return {at::constant_pad_nd(in.x, {1, 2}),          at::constant_pad_nd(in.x, {1, 0, 0, 2}, -0.5),
                 at::constant_pad_nd(in.x, {-1, 2}, 3),      at::constant_pad_nd(in.x, {-1, -1, 1, -1}),
                 at::constant_pad_nd(in.n, {0, 1, 2, 0}, 7), at::constant_pad_nd(in.mask, {1, 0}, true)};
       }},
      {"aten::repeat",
       [](const Operands& in) -> Tensors {
         return {in.x.repeat({2, 1, 3}), in.row.repeat({3, 2}), in.row.repeat({2, 0}), in.n.repeat({1, 1, 1})};
       }},
      {"aten::flip",
       [](const Operands& in) -> Tensors {
         return {in.x.flip(0), in.x.flip({0, -1}), in.mask.flip(1)};
       }},
  };
}

std::vector<OperatorCase> dropout_cases() {
  return {{"runner::keep_mask", [](const Operands& in) -> Tensors {
             const auto mask = [&](std::vector<int64_t> sizes, double p, uint64_t block, uint64_t site, int64_t rows) {
               const auto key = mix64(mix64(static_cast<uint64_t>(step_dropout_key) ^ mix64(block)) + site);
               MaskPlace place{.key = key, .first_row = step_first_row, .rows = rows};
               place.block = block, place.site = site;
               return keep_mask(sizes, in.x.device(), p, place);
             };
             return {mask({6, 7}, 0.3, 0, 1, 2), mask({4, 2, 3, 8}, 0.5, 3, 0, 4), mask({4, 2, 5}, 0.1, 1, 2, 2)};
           }}};
}

}  // namespace runner::testing
