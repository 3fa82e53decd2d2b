// Layers with custom backward, compared with ATen's composed operations in fp64: RMSNorm, SwiGLU, rotary positions,
// attention.
#include "test_model.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "runner/models/attention.hpp"
#include "runner/models/decoder/rotary.hpp"
#include "runner/models/gelu.hpp"
#include "runner/models/layers.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

torch::Tensor leaf(at::IntArrayRef sizes, uint64_t seed, torch::ScalarType dtype = torch::kFloat64) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::normal(0.0, 1.0, sizes, generator, torch::kFloat64).to(dtype).requires_grad_(true);
}

/// Requires equal gradients of every input, for a random gradient of the output.
void check_same_gradients(const torch::Tensor& actual, const torch::Tensor& expected,
                          const std::vector<torch::Tensor>& inputs, double tolerance) {
  auto gradient = leaf(expected.sizes(), 99, expected.scalar_type()).detach();
  auto a = torch::autograd::grad({actual}, inputs, {gradient}),
       b = torch::autograd::grad({expected}, inputs, {gradient});
  // Relative to the largest gradient: with one position a softmax is constant, and the gradients of q and k are only
  // rounding.
  double largest = 0;
  for (const auto& expected_gradient : b) largest = std::max(largest, expected_gradient.abs().max().item<double>());
  for (size_t i = 0; i < inputs.size(); ++i) {
    CAPTURE(i);
    CHECK((a[i] - b[i]).abs().max().item<double>() < tolerance * largest);
  }
}

/// The same, and equal values.
void check_same(const torch::Tensor& actual, const torch::Tensor& expected, const std::vector<torch::Tensor>& inputs,
                double tolerance = 1e-12) {
  CHECK(relative_error(actual, expected) < tolerance);
  check_same_gradients(actual, expected, inputs, tolerance);
}

}  // namespace

TEST_CASE("RMSNorm and its gradients follow the formula") {
  auto x = leaf({10, 24}, 1), weight = leaf({24}, 2);
  auto expected = x * torch::rsqrt(x.pow(2).mean(-1, true) + 1e-5) * weight;
  check_same(rms_norm(x, weight, 1e-5), expected, {x, weight});
}

TEST_CASE("RMSNorm of half precision reduces in fp32") {
  auto x = leaf({10, 512}, 1, torch::kBFloat16), weight = leaf({512}, 2, torch::kBFloat16);
  auto wide = x.to(torch::kFloat32);
  auto expected =
      (wide * torch::rsqrt(wide.pow(2).mean(-1, true) + 1e-5) * weight.to(torch::kFloat32)).to(torch::kBFloat16);
  check_same(rms_norm(x, weight, 1e-5), expected, {x, weight}, 0.01);
}

TEST_CASE("SwiGLU and its gradients follow the formula") {
  auto gate = leaf({10, 24}, 1), up = leaf({10, 24}, 2);
  check_same(gated(gate, up, Activation::silu), torch::silu(gate) * up, {gate, up});
}

TEST_CASE("value and derivative of GELU in host memory are within 3e-7 of the formula, at every magnitude") {
  auto form = GENERATE(Gelu::exact, Gelu::tanh);
  auto wide = at::cat({at::linspace(-14, 14, 200001, torch::kFloat64), at::logspace(-30, 30, 1001, 10, torch::kFloat64),
                       -at::logspace(-30, 30, 1001, 10, torch::kFloat64)})
                  .to(torch::kFloat32)
                  .to(torch::kFloat64)
                  .requires_grad_(true);
  auto expected = at::gelu(wide, form == Gelu::exact ? "none" : "tanh");
  auto derivative = torch::autograd::grad({expected}, {wide}, {at::ones_like(expected)})[0];
  auto x = wide.detach().to(torch::kFloat32), y = at::empty_like(x);
  gelu_with_derivative(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), form);
  auto unit = at::clamp_min(wide.detach().abs(), 1.0);
  CHECK(((y.to(torch::kFloat64) - expected) / unit).abs().max().item<double>() < 3e-7);
  // ATen's derivative of the tanh form overflows if x^2 does. The correct value there is 0 or 1.
  auto usable = derivative.isfinite();
  CHECK(usable.sum().item<int64_t>() > 201000);
  CHECK(((x.to(torch::kFloat64) - derivative) / unit).masked_select(usable).abs().max().item<double>() < 3e-7);
}

TEST_CASE("GELU of infinities and NaN") {
  auto form = GENERATE(Gelu::exact, Gelu::tanh);
  float infinity = std::numeric_limits<float>::infinity();
  std::array<float, 3> x{infinity, -infinity, std::nanf("")}, y{};
  gelu_with_derivative(x.data(), y.data(), 3, form);
  CHECK(y[0] == infinity);
  CHECK(std::isnan(y[1]));
  CHECK(std::isnan(y[2]));
}

TEST_CASE("GELU and its gradient equal ATen's in every dtype, and overwrite only the temporary") {
  auto form = GENERATE(Gelu::exact, Gelu::tanh);
  auto dtype = GENERATE(torch::kFloat64, torch::kFloat32, torch::kBFloat16);
  auto x = leaf({10, 4099}, 1, dtype);
  auto kept = x.detach().clone();
  const auto actual = gelu(x * 3, form), expected = at::gelu(x * 3, form == Gelu::exact ? "none" : "tanh");
  // bf16: a few values are rounded to the neighbour, and the derivative is rounded.
  const bool halves = dtype == torch::kBFloat16;
  const double tolerance = dtype == torch::kFloat64 ? 1e-12 : 1e-6;
  CHECK(relative_error(actual, expected) < (halves ? 1e-5 : tolerance));
  check_same_gradients(actual, expected, {x}, halves ? 0.01 : tolerance);
  CHECK(x.detach().equal(kept));
}

TEST_CASE("rotary positions rotate each pair by position times frequency, also with Llama 3.1's scaling") {
  for (bool scaled : {false, true}) {
    auto recipe = llama_recipe();
    if (scaled) recipe.rope_scaling = Recipe::Model::RopeScaling{8.0, 1.0, 4.0, 8};
    auto frequencies = decoder::rope_frequencies(recipe).angles;
    decoder::RotaryTable table({.angles = frequencies}, 16);
    auto x = leaf({2, 11, 3, 8}, 1);
    auto slice = table.first(11, torch::kCPU, torch::kFloat64);
    auto y = decoder::rotate(x, slice);
    double worst = 0;
    for (int64_t t = 0; t < 11; ++t)
      for (int64_t i = 0; i < 4; ++i) {
        double angle = static_cast<double>(t) * frequencies[static_cast<size_t>(i)];
        auto a = x[1][t][2][i].item<double>(), b = x[1][t][2][i + 4].item<double>();
        worst = std::max(worst, std::abs(y[1][t][2][i].item<double>() - (a * std::cos(angle) - b * std::sin(angle))));
        worst =
            std::max(worst, std::abs(y[1][t][2][i + 4].item<double>() - (b * std::cos(angle) + a * std::sin(angle))));
      }
    CHECK(worst < 1e-12);

    // Hugging Face's composed form: x cos + rotate_half(x) sin.
    auto halves = x.chunk(2, -1);
    auto cos = torch::cat({slice.cos, slice.cos}, -1), sin = torch::cat({slice.sin, slice.sin}, -1);
    check_same(y, x * cos + torch::cat({-halves[1], halves[0]}, -1) * sin, {x});
  }
}

TEST_CASE("attention is causal softmax(Q K^T) V, and grouped keys equal repeated keys") {
  MicroBatch none;
  ForwardContext context{&none, true, 1};
  for (auto dtype : {torch::kFloat64, torch::kFloat32})
    for (int64_t seq_len : {1, 6, 13, 48, 101})
      for (int64_t head_dim : {4, 8, 24, 40})
        for (int64_t key_heads : {4, 2}) {
          CAPTURE(dtype, seq_len, head_dim, key_heads);
          auto q = leaf({2, seq_len, 4, head_dim}, 1, dtype);
          auto kv = leaf({2, seq_len, 2 * key_heads, head_dim}, 2, dtype);
          auto k = kv.narrow(2, 0, key_heads), v = kv.narrow(2, key_heads, key_heads);
          auto per_head = [&](const torch::Tensor& x) { return x.repeat_interleave(4 / x.size(2), 2).transpose(1, 2); };
          auto scores =
              torch::matmul(per_head(q), per_head(k).transpose(-2, -1)) / std::sqrt(static_cast<double>(head_dim));
          auto future = torch::ones({seq_len, seq_len}, torch::kBool).triu(1);
          auto expected = torch::matmul(scores.masked_fill(future, -INFINITY).softmax(-1), per_head(v));
          check_same(causal_attention(q, k, v, Dropout(0, 1), context),
                     expected.transpose(1, 2).reshape({2 * seq_len, 4 * head_dim}), {q, kv},
                     dtype == torch::kFloat64 ? 1e-12 : 3e-6);
        }
}

TEST_CASE("attention gives the same bits with any number of threads") {
  MicroBatch none;
  ForwardContext context{&none, true, 1};
  auto q = leaf({3, 50, 4, 16}, 1, torch::kFloat32), kv = leaf({3, 50, 4, 16}, 2, torch::kFloat32);
  auto run = [&](int threads) {
    int before = at::get_num_threads();
    at::set_num_threads(threads);
    auto out = causal_attention(q, kv.narrow(2, 0, 2), kv.narrow(2, 2, 2), Dropout(0, 1), context);
    auto gradients = torch::autograd::grad({out.square().sum()}, {q, kv});
    at::set_num_threads(before);
    return std::vector<torch::Tensor>{out, gradients[0], gradients[1]};
  };
  auto one = run(1), two = run(2);
  for (size_t i = 0; i < one.size(); ++i) CHECK(torch::equal(one[i], two[i]));
}
