// LayerNorm of bfloat16 in host memory compared with the formula in fp64.
#include "runner/models/host_layer_norm.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace runner;

namespace {

/// The largest difference, relative to the largest value.
double largest_error(const torch::Tensor& actual, const torch::Tensor& expected) {
  return ((actual - expected).abs().max() / expected.abs().max()).item<double>();
}

}  // namespace

TEST_CASE("LayerNorm of bfloat16 and its gradients follow the formula, for every width") {
  for (int64_t columns : {1, 7, 64, 100, 384})
    for (bool biased : {true, false}) {
      CAPTURE(columns, biased);
      auto draw = [&, generator = at::detail::createCPUGenerator(3)](at::IntArrayRef sizes) {
        return at::normal(1.0, 2.0, sizes, generator, torch::kFloat32).to(torch::kBFloat16).requires_grad_(true);
      };
      std::vector<torch::Tensor> in = {draw({37, columns}), draw({columns})}, wide;
      if (biased) in.push_back(draw({columns}));
      for (const auto& x : in) wide.push_back(x.detach().to(torch::kFloat64).requires_grad_(true));
      auto dy = draw({37, columns}).detach();
      auto y = host_layer_norm(in[0], in[1], biased ? in[2] : torch::Tensor(), 1e-5);
      auto expected = at::layer_norm(wide[0], {columns}, wide[1], biased ? wide[2] : torch::Tensor(), 1e-5);
      CHECK(y.scalar_type() == torch::kBFloat16);
      if (columns > 1) CHECK(largest_error(y, expected) < 0.004);
      auto gradients = torch::autograd::grad({y}, in, {dy});
      auto formula = torch::autograd::grad({expected}, wide, {dy.to(torch::kFloat64)});
      for (size_t i = columns > 1 ? 0 : 2; i < in.size(); ++i) CHECK(largest_error(gradients[i], formula[i]) < 0.005);
    }
}

TEST_CASE("LayerNorm of bfloat16 keeps NaN in its row") {
  auto x = torch::randn({3, 16}).to(torch::kBFloat16);
  x[1][5] = NAN;
  auto y = host_layer_norm(x, torch::ones({16}, torch::kBFloat16), {}, 1e-5).isnan();
  CHECK(y[1].all().item<bool>());
  CHECK_FALSE(y[0].any().item<bool>());
  CHECK_FALSE(y[2].any().item<bool>());
}
