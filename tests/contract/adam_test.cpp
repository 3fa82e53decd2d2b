// The Adam kernel against LibTorch's fused kernel, its conversions of every 16-bit value, and parameters cut into
// parts.
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/host_update.hpp"
#include "strategies/contract/tensor_update.hpp"

using namespace runner;

namespace {

struct State {
  torch::Tensor parameter, exp_avg, exp_avg_sq;
  State clone() const { return {parameter.clone(), exp_avg.clone(), exp_avg_sq.clone()}; }
};

State random_state(int64_t count) {
  torch::manual_seed(3);
  return {torch::randn({count}), torch::randn({count}) * 0.01, torch::randn({count}).square() * 1e-4};
}

UpdateSpan span_of(State& state, const torch::Tensor& gradient) {
  UpdateSpan span;
  span.parameter = state.parameter.data_ptr<float>();
  span.first = state.exp_avg.data_ptr<float>();
  span.second = state.exp_avg_sq.data_ptr<float>();
  span.gradient = gradient.data_ptr();
  if (gradient.scalar_type() == torch::kBFloat16) span.gradient_dtype = DType::bfloat16;
  if (gradient.scalar_type() == torch::kFloat16) span.gradient_dtype = DType::float16;
  span.count = gradient.numel();
  return span;
}

/// The difference of two results of one update, in units in the last place of the larger of result and change.
double ulps(float ours, float theirs, float before) {
  float scale = std::max(std::abs(theirs), std::abs(theirs - before));
  return std::abs(double{ours} - double{theirs}) / (std::nextafter(scale, INFINITY) - scale);
}

}  // namespace

TEST_CASE("Adam and AdamW are within two ulp of LibTorch's fused kernels", "[adam]") {
  auto decoupled = GENERATE(true, false);
  auto divisor = GENERATE(1.0, 3.7);
  constexpr int64_t count = 100'003;
  State theirs = random_state(count), ours = theirs.clone();
  for (int64_t step = 1; step <= 5; ++step) {
    // The state is equal before each step, so each comparison covers one update.
    ours = theirs.clone();
    auto before = theirs.parameter.clone();
    auto gradient = torch::randn({count}) * 0.1, theirs_gradient = gradient.clone();
    UpdateSettings settings{1e-2, 0.9, 0.95, 1e-8, 0.1, decoupled, divisor, step};
    host_update(settings, span_of(ours, gradient));
    std::vector<at::Tensor> p{theirs.parameter}, g{theirs_gradient}, m{theirs.exp_avg}, v{theirs.exp_avg_sq},
        steps{torch::full({}, static_cast<double>(step))};
    auto scale = torch::full({}, divisor);
    std::optional<at::Tensor> grad_scale;
    if (divisor != 1.0) grad_scale = scale;
    if (decoupled)
      at::_fused_adamw_(p, g, m, v, {}, steps, 1e-2, 0.9, 0.95, 0.1, 1e-8, false, false, grad_scale, {});
    else
      at::_fused_adam_(p, g, m, v, {}, steps, 1e-2, 0.9, 0.95, 0.1, 1e-8, false, false, grad_scale, {});
    double most = 0;
    for (int64_t i = 0; i < count; ++i)
      most = std::max(most, ulps(ours.parameter.data_ptr<float>()[i], theirs.parameter.data_ptr<float>()[i],
                                 before.data_ptr<float>()[i]));
    CHECK(most <= 2);
    CHECK(torch::allclose(ours.exp_avg, theirs.exp_avg, 1e-6, 1e-9));
    CHECK(torch::allclose(ours.exp_avg_sq, theirs.exp_avg_sq, 1e-6, 1e-12));
  }
}

TEST_CASE("a parameter may be cut anywhere, and the bits stay the same", "[adam]") {
  constexpr int64_t count = 10'007;
  State whole = random_state(count), cut = whole.clone();
  auto gradient = torch::randn({count});
  UpdateSettings settings;
  host_update(settings, span_of(whole, gradient));
  UpdateSpan span = span_of(cut, gradient);
  int64_t begin = 0;
  for (int64_t length : {1, 5, 31, 2048, 3000, 4922}) {
    host_update(settings, span.cut(begin, length));
    begin += length;
  }
  REQUIRE(begin == count);
  CHECK(torch::equal(whole.parameter, cut.parameter));
  CHECK(torch::equal(whole.exp_avg, cut.exp_avg));
  CHECK(torch::equal(whole.exp_avg_sq, cut.exp_avg_sq));
}

TEST_CASE("reading 16-bit gradients and writing 16-bit copies converts exactly as LibTorch does", "[adam]") {
  auto dtype = GENERATE(torch::kBFloat16, torch::kFloat16);
  // Every 16-bit pattern as a gradient, including infinities and NaN.
  auto gradient = torch::arange(65536, torch::kInt32).to(torch::kInt16).view(dtype);
  State narrow = random_state(65536), wide = narrow.clone();
  UpdateSettings settings;
  auto widened = gradient.to(torch::kFloat32);
  host_update(settings, span_of(narrow, gradient));
  host_update(settings, span_of(wide, widened));
  CHECK(torch::equal(narrow.parameter.nan_to_num(7e7), wide.parameter.nan_to_num(7e7)));
  CHECK(torch::equal(narrow.exp_avg.nan_to_num(7e7), wide.exp_avg.nan_to_num(7e7)));

  // Parameters equal to, between and next to all 16-bit values. An update with zero gradients does not change them.
  auto values = torch::cat({widened, torch::nextafter(widened, torch::full({}, 1e30f)), widened * 1.0002441f,
                            torch::randn({100'000}), torch::randn({100'000}) * 1e-6, torch::randn({100'000}) * 1e5});
  State still{values.clone(), torch::zeros_like(values), torch::zeros_like(values)};
  auto none = torch::zeros_like(values), copy = torch::empty({values.numel()}, dtype);
  UpdateSpan span = span_of(still, none);
  span.copy = copy.data_ptr();
  span.copy_dtype = dtype == torch::kBFloat16 ? DType::bfloat16 : DType::float16;
  settings.weight_decay = 0;
  host_update(settings, span);
  auto expected = values.to(dtype);
  auto is_nan = values.isnan();
  CHECK(torch::equal(copy.isnan(), is_nan));
  CHECK(torch::equal(copy.view(torch::kInt16).masked_select(~is_nan),
                     expected.view(torch::kInt16).masked_select(~is_nan)));
}

TEST_CASE("an update that keeps the moments, or is given the first one, does the same by LibTorch's operators",
          "[adam]") {
  constexpr int64_t count = 10'007;
  const auto moments = GENERATE(Moments::from_gradient, Moments::kept, Moments::first_given);
  const State before = random_state(count);
  State ours = before.clone(), theirs = before.clone();
  const auto gradient = torch::randn({count}) * 0.1;
  UpdateSettings settings{.lr = 1e-2, .weight_decay = 0.1, .decoupled = false, .gradient_divisor = 2, .step = 7};
  settings.moments = moments;
  host_update(settings, span_of(ours, gradient));
  tensor_update({settings, theirs.parameter, gradient, {theirs.exp_avg, theirs.exp_avg_sq}});
  CHECK(torch::allclose(ours.parameter, theirs.parameter, 1e-6, 1e-7));
  CHECK(torch::allclose(ours.exp_avg, theirs.exp_avg, 1e-6, 1e-8));
  CHECK(torch::allclose(ours.exp_avg_sq, theirs.exp_avg_sq, 1e-6, 1e-12));
  if (moments == Moments::from_gradient) return;
  CHECK(torch::equal(ours.exp_avg_sq, before.exp_avg_sq));
  CHECK(torch::allclose(ours.exp_avg, moments == Moments::kept ? before.exp_avg : gradient / 2, 1e-6, 1e-8));
  const auto roots = (before.exp_avg_sq / (1 - std::pow(0.999, 7))).sqrt() + 1e-8;
  CHECK(torch::allclose(ours.parameter, before.parameter - 1e-2 / (1 - std::pow(0.9, 7)) * ours.exp_avg / roots, 1e-5,
                        1e-6));
}
