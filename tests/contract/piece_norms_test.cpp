// Norms of large tensors, against float64.
#include "strategies/contract/piece_norms.hpp"

#include <ATen/Parallel.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>

#include "strategies/collective/counting_allocator.hpp"

using namespace runner;
using Catch::Matchers::WithinRel;

namespace {

double norm_of(const std::vector<torch::Tensor>& tensors) {
  return std::sqrt(piece_norms(tensors).to(torch::kFloat64).square().sum().item<double>());
}

/// In float64, without a copy of the whole tensor.
double exact_norm(const torch::Tensor& tensor) {
  double squares = 0;
  for (const auto& part : tensor.view(-1).split(1 << 20))
    squares += part.to(torch::kFloat64).square().sum().item<double>();
  return std::sqrt(squares);
}

}  // namespace

TEST_CASE("the norm of a large tensor is exact, also in parts, and on any number of threads", "[norm]") {
  const auto type = GENERATE(torch::kFloat32, torch::kBFloat16, torch::kFloat16, torch::kFloat64);
  INFO(c10::toString(type));
  torch::manual_seed(9);
  const auto matrix = torch::randn({4100, 4099}).to(type);
  const double expected = exact_norm(matrix), tolerance = type == torch::kFloat64 ? 1e-14 : 1e-6;
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double by_one = norm_of({matrix});
  at::set_num_threads(2);
  CHECK(norm_of({matrix}) == by_one);
  at::set_num_threads(threads);
  CHECK_THAT(by_one, WithinRel(expected, tolerance));
  const auto flat = matrix.view(-1);
  const int64_t cut = 5'000'001;
  CHECK_THAT(norm_of({flat.narrow(0, 0, cut), flat.narrow(0, cut, flat.numel() - cut)}),
             WithinRel(expected, tolerance));
}

TEST_CASE("a norm is taken without a copy of the whole tensor", "[norm]") {
  const auto type = GENERATE(torch::kFloat32, torch::kBFloat16, torch::kFloat64);
  const auto tensor = torch::ones({1 << 20}, type);
  MemoryAccount account;
  AccountScope scope(account);
  CHECK(norm_of({tensor}) == 1024);
  CHECK(account.peak() < (type == torch::kBFloat16 ? 300'000 : 1 << 14));  // a part of it in float32
}

TEST_CASE("norms of small and empty tensors, and of values that are not finite", "[norm]") {
  CHECK(norm_of({torch::full({}, 3.0f), torch::zeros({0}), torch::full({1, 1}, 4.0f)}) == 5);
  CHECK(norm_of({torch::zeros({0})}) == 0);
  auto values = torch::ones({10'000});
  for (const double bad : {INFINITY, NAN}) {
    values[9'999] = bad;
    CHECK_FALSE(std::isfinite(norm_of({values})));
    values[9'999] = 1;
    values[3] = bad;
    CHECK_FALSE(std::isfinite(norm_of({values})));
    values[3] = 1;
  }
}
