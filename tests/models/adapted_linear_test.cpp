// Products with adapters: results and gradients equal those of the formulas, computed by autograd.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "runner/models/adapted_linear.hpp"

using namespace runner;
using torch::Tensor;

namespace {

constexpr int64_t rows = 12, in = 10, out = 7, rank = 3;
constexpr double scale = 0.7;

struct Operands {
  Tensor x, weight, bias, a, b, magnitude;

  Operands() {
    torch::manual_seed(3);
    const auto random = [](at::IntArrayRef sizes) { return torch::randn(sizes, torch::kFloat64); };
    x = random({rows, in}).requires_grad_();
    weight = random({out, in});
    bias = random({out});
    a = random({rank, in}).requires_grad_();
    b = random({out, rank}).requires_grad_();
    magnitude = random({out}).abs_().requires_grad_();
  }
  LowRank adapter(const PlacedDropout& dropout) const { return {.a = a, .b = b, .scale = scale, .dropout = dropout}; }
  std::vector<Tensor> gradients(const Tensor& result, bool of_magnitude) const {
    std::vector<Tensor> inputs = {x, a, b};
    if (of_magnitude) inputs.push_back(magnitude);
    const auto weights = torch::arange(result.numel(), torch::kFloat64).view(result.sizes()).sin();
    return torch::autograd::grad({result}, inputs, {weights}, /*retain_graph=*/true);
  }
};

void check_equal(const std::vector<Tensor>& results, const std::vector<Tensor>& expected) {
  REQUIRE(results.size() == expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    INFO("tensor " << i);
    CHECK(torch::allclose(results[i], expected[i], 1e-12, 1e-12));
  }
}

}  // namespace

TEST_CASE("the product with an adapter and its gradients are those of the formula", "[adapters][rank4][rank20]") {
  const Operands o;
  const PlacedDropout dropout{.p = GENERATE(0.0, 0.3), .place = {.key = 5, .first_row = 2, .rows = 4}};
  const auto bias = GENERATE(true, false) ? o.bias : Tensor();
  const auto dropped = dropout(o.x);
  const auto base = at::linear(o.x, o.weight, bias), low = scale * at::mm(at::mm(dropped, o.a.t()), o.b.t());

  const auto lora = lora_linear(o.x, o.weight, bias, o.adapter(dropout));
  check_equal({lora}, {base + low});
  check_equal(o.gradients(lora, false), o.gradients(base + low, false));

  // PEFT's: the base's result, and (m / n - 1) d W^T + (m / n) s d A^T B^T, with n without a gradient.
  const auto n = (o.weight + scale * at::mm(o.b, o.a)).norm(2, 1).detach(), factor = o.magnitude / n;
  const auto dora = dora_linear(o.x, o.weight, bias, o.adapter(dropout), o.magnitude);
  const auto expected = base + (factor - 1) * at::mm(dropped, o.weight.t()) + factor * low;
  check_equal({dora}, {expected});
  check_equal(o.gradients(dora, true), o.gradients(expected, true));
}

TEST_CASE("norms of the rows of a matrix with an adapter", "[adapters][rank20]") {
  torch::manual_seed(4);
  const auto dtype = GENERATE(torch::kFloat32, torch::kBFloat16);
  const int64_t many = GENERATE(5, 700);  // 700 rows of 16 bits are converted in two parts
  auto weight = torch::randn({many, 600}).to(dtype);
  weight[1].zero_();
  const auto a = torch::randn({4, 600}).to(dtype), b = torch::randn({many, 4}).to(dtype);
  const auto whole = weight.to(torch::kFloat64) + 0.5 * at::mm(b.to(torch::kFloat64), a.to(torch::kFloat64));
  const auto norms = adapted_row_norms(weight, a, b, 0.5);
  CHECK(norms.scalar_type() == torch::kFloat32);
  CHECK(torch::allclose(norms.to(torch::kFloat64), whole.norm(2, 1), 1e-5, 1e-6));
  // A row of zeros with B = 0 has a norm that it can be divided by.
  CHECK(adapted_row_norms(weight, a, torch::zeros_like(b), 0.5)[1].item<float>() > 0);
}
