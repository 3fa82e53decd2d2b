// Every operator that has a lowering gives what LibTorch gives, forward and backward, and tensors are views of memory as LibTorch's are.
#include <fmt/ranges.h>

#include <catch2/catch_test_macros.hpp>
#include <span>

#include "runner/base/error.hpp"
#include "strategies/xla/lowering.hpp"
#include "tests/xla/operator_cases.hpp"

namespace runner::testing {

namespace {

std::vector<OperatorCase> all_cases() {
  std::vector<OperatorCase> all;
  for (auto* part : {&elementwise_cases, &activation_cases, &new_tensor_cases, &product_cases, &reduction_cases,
                     &loss_cases, &indexing_cases, &join_cases, &norm_cases, &image_cases, &dropout_cases})
    for (auto& one : part()) all.push_back(one);
  return all;
}

/// The members of Operands, in their order.
Tensors operands(torch::ScalarType type) {
  torch::manual_seed(1);
  const auto random = [&](const std::vector<int64_t>& shape) {
    return torch::randn(shape, torch::kFloat64).to(type).requires_grad_(true);
  };
  const std::vector<double> special{NAN, INFINITY, -INFINITY, 0, -0.0, 2.5, -2.5, 1.5, -0.5, 3};
  auto m = torch::randint(1, 10, {2, 3, 4}, torch::kInt64);
  m = m * (torch::randint(0, 2, {2, 3, 4}, torch::kInt64) * 2 - 1);
  return {random({2, 3, 4}),
          random({2, 3, 4}),
          (torch::rand({2, 3, 4}, torch::kFloat64) * 2.8 + 0.2).to(type).requires_grad_(true),
          random({4}),
          random({3, 1}),
          random({3, 4}),
          random({4, 5}),
          random({2, 4, 7, 6}),
          random({6, 2, 3, 2}),
          torch::tensor(special, torch::kFloat64).to(type),
          torch::randint(-9, 10, {2, 3, 4}, torch::kInt64),
          m,
          torch::randint(0, 4, {2, 3}, torch::kInt64),
          torch::rand({2, 3, 4}).gt(0.6),
          torch::tensor({4, -2, 7, 1}, torch::kInt32)};
}

Operands named(const Tensors& all) {
  return {all[0], all[1], all[2],  all[3],  all[4],  all[5],  all[6], all[7],
          all[8], all[9], all[10], all[11], all[12], all[13], all[14]};
}

/// Numbers in bfloat16 are rounded by up to 2^-8, and the gradient of an operand with several uses is rounded after each addition.
constexpr double float64_tolerance = 1e-12, float32_tolerance = 4e-6, bfloat16_tolerance = 0x1p-6;

std::string text_of_values(const torch::Tensor& values) {
  const auto all = values.to(torch::kInt64).contiguous();
  return fmt::format("{}", std::span(all.data_ptr<int64_t>(), static_cast<size_t>(all.numel())));
}

/// What LibTorch computes, and the same in float64.
struct Expected {
  torch::Tensor value, exact;
};

/// Empty: the result is as exact as LibTorch's, up to a tolerance relative to the values. Otherwise how it differs.
std::string difference(const torch::Tensor& found, const Expected& expected, double tolerance) {
  const auto& value = expected.value;
  if (found.sizes() != value.sizes() || found.scalar_type() != value.scalar_type())
    return fmt::format("{} of sizes [{}] instead of {} of sizes [{}]", toString(found.scalar_type()),
                       fmt::join(found.sizes(), ", "), toString(value.scalar_type()), fmt::join(value.sizes(), ", "));
  if (value.numel() == 0) return "";
  if (!value.is_floating_point())
    return found.equal(value) ? "" : fmt::format("{} instead of {}", text_of_values(found), text_of_values(value));
  if (value.scalar_type() == torch::kFloat32) tolerance = std::max(tolerance, float32_tolerance);
  if (value.scalar_type() == torch::kBFloat16) tolerance = std::max(tolerance, bfloat16_tolerance);
  const auto flat = [](const torch::Tensor& all) { return all.to(torch::kFloat64).contiguous().view(-1); };
  const auto a = flat(found), b = flat(value), exact = flat(expected.exact);
  const auto finite = b.isfinite();
  const double largest = finite.any().item<bool>() ? b.where(finite, 0).abs().max().item<double>() : 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = a[i].item<double>(), y = b[i].item<double>(), z = exact[i].item<double>();
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (std::abs(x - z) <= std::abs(y - z) + tolerance * (std::abs(y) + largest) / 2) continue;
    return fmt::format("element {}: {:.17g} instead of {:.17g}, exactly {:.17g}", i, x, y, z);
  }
  return "";
}

Tensors exact_inputs(const Tensors& inputs) {
  Tensors exact;
  for (const auto& input : inputs)
    exact.push_back(input.is_floating_point() ? input.detach().to(torch::kFloat64).requires_grad_(input.requires_grad())
                                              : input);
  return exact;
}

/// Runs cases as one program, and compares each result with LibTorch's. Returns the lowerings that were used.
std::set<std::string> check(const std::vector<OperatorCase>& cases, torch::ScalarType type, double tolerance) {
  const auto inputs = operands(type);
  std::vector<std::string> names;  // of the results
  std::vector<Expected> expected;
  std::vector<TensorFunction> functions;
  for (const auto& one : cases) {
    functions.push_back(with_gradients([&one](const Tensors& all) { return one.compute(named(all)); }));
    const auto values = functions.back()(inputs), exact = functions.back()(exact_inputs(inputs));
    for (size_t i = 0; i < values.size(); ++i) {
      names.push_back(fmt::format("{}, result {}", one.name, i));
      expected.push_back({values[i], exact[i]});
    }
  }
  const auto found = run_traced(
      [&](const Tensors& all) {
        Tensors results;
        for (const auto& function : functions)
          for (const auto& result : function(all)) results.push_back(result);
        return results;
      },
      inputs);
  REQUIRE(found.outputs.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO(names[i]);
    CHECK(difference(found.outputs[i], expected[i], tolerance) == "");
  }
  return found.lowered;
}

/// The same for all cases, some at a time: a program takes about as long to compile as five cases.
std::set<std::string> check_all(const std::vector<OperatorCase>& cases, torch::ScalarType type, double tolerance) {
  constexpr size_t at_once = 10;
  std::set<std::string> lowered;
  for (size_t begin = 0; begin < cases.size(); begin += at_once) {
    const size_t end = std::min(cases.size(), begin + at_once);
    INFO(toString(type) << ", cases from " << cases[begin].name << " to " << cases[end - 1].name);
    try {
      lowered.merge(check({cases.begin() + static_cast<ptrdiff_t>(begin), cases.begin() + static_cast<ptrdiff_t>(end)},
                          type, tolerance));
    } catch (const std::exception& error) {
      FAIL_CHECK(c10::str(error.what()).substr(0, 1000));
    }
  }
  return lowered;
}

}  // namespace

TEST_CASE("each lowering computes what LibTorch computes, forward and backward", "[xla][operators]") {
  const auto cases = all_cases();
  std::set<std::string> tested;
  for (const auto& one : cases) tested.insert(one.name);
  CHECK(tested.size() == cases.size());
  const auto used = check_all(cases, torch::kFloat64, float64_tolerance);
  for (const auto& name : xla::lowered_operators()) {
    INFO("the lowering " << name);
    CHECK(tested.contains(name));
    CHECK(used.contains(name));
  }
}

TEST_CASE("lowerings compute in float32 and bfloat16 as LibTorch does", "[xla][operators]") {
  std::vector<OperatorCase> cases;
  for (const auto& one : all_cases())
    if (one.in_all_types) cases.push_back(one);
  check_all(cases, torch::kFloat32, float32_tolerance);
  check_all(cases, torch::kBFloat16, bfloat16_tolerance);
}

}  // namespace runner::testing
