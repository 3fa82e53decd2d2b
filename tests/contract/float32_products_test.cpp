// fp32 products by oneDNN, compared with products in fp64. A program of its own, because the choice is one for the process.
#include <catch2/catch_test_macros.hpp>

#include "strategies/collective/counting_allocator.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/float32_products.hpp"

using namespace runner;
using torch::Tensor;

namespace {

constexpr int64_t rows = 320, inner = 288, columns = 384;

Tensor drawn(int64_t first, int64_t second) { return at::randn({first, second}, torch::kFloat32); }

double difference(const Tensor& a, const Tensor& b) { return (a.to(torch::kFloat64) - b).abs().max().item<double>(); }

/// Matrices in each form that a layer multiplies: row-major, transposed, and with rows that are apart.
std::vector<Tensor> forms(const Tensor& matrix) {
  auto wide = at::zeros({matrix.size(0), matrix.size(1) + 5}, matrix.options());
  wide.narrow(1, 0, matrix.size(1)).copy_(matrix);
  return {matrix, matrix.t().contiguous().t(), wide.narrow(1, 0, matrix.size(1))};
}

void use_products() {
  if (!has_onednn_float32()) SKIP("this CPU has no matrix instructions of AVX-512");
  use_onednn_for_float32();
}

}  // namespace

TEST_CASE("fp32 products by oneDNN have the values of LibTorch's") {
  torch::manual_seed(7);
  use_products();
  use_products();
  const Tensor left = drawn(rows, inner), right = drawn(inner, columns), bias = drawn(1, columns)[0],
               sum = drawn(rows, columns);
  const Tensor exact = at::mm(left.to(torch::kFloat64), right.to(torch::kFloat64));
  constexpr double tolerance = 1e-3;
  for (const auto& a : forms(left))
    for (const auto& b : forms(right)) {
      const Tensor product = at::mm(a, b);
      CHECK(difference(product, exact) < tolerance);
      CHECK(at::equal(product, at::mm(a, b)));
      Tensor out = at::full({rows, columns}, NAN);
      at::mm_out(out, a, b);
      CHECK(at::equal(out, product));
      CHECK(difference(at::linear(a, b.t(), bias), exact + bias) < tolerance);
      CHECK(difference(at::addmm(sum, a, b, 0.5, 3), 0.5 * sum + 3 * exact) < tolerance);
      Tensor added = sum.clone();
      added.addmm_(a, b, 1, 2);
      CHECK(difference(added, sum + 2 * exact) < tolerance);
    }
  // With beta = 0, values that are not finite do not count.
  CHECK(difference(at::addmm(at::full({rows, columns}, NAN), left, right, 0, 1), exact) < tolerance);
  CHECK(difference(at::linear(left.view({4, rows / 4, inner}), right.t()).view({rows, columns}), exact) < tolerance);
}

TEST_CASE("other products are computed as before") {
  use_products();
  const Tensor a = at::arange(12, torch::kFloat32).view({3, 4});
  CHECK(at::equal(at::mm(a, at::eye(4)), a));
  CHECK(at::equal(at::mm(a.to(torch::kFloat64), at::eye(4, torch::kFloat64)), a.to(torch::kFloat64)));
  const Tensor large = drawn(rows, inner);
  CHECK(at::equal(at::mm(large.slice(1, 0, inner, 2), at::eye(inner / 2)), large.slice(1, 0, inner, 2)));
  CHECK(at::mm(drawn(0, inner), drawn(inner, columns)).sizes() == at::IntArrayRef{0, columns});
  Tensor resized = at::empty({0});
  at::mm_out(resized, large, drawn(inner, columns));
  CHECK(resized.sizes() == at::IntArrayRef{rows, columns});
  CHECK_THROWS_AS(at::mm(large, large), c10::Error);
  CHECK_THROWS_AS(at::addmm(drawn(rows, 3), large, drawn(inner, columns)), c10::Error);
}

TEST_CASE("gradients flow through fp32 products by oneDNN") {
  torch::manual_seed(8);
  use_products();
  Tensor a = drawn(rows, inner).requires_grad_(true), b = drawn(inner, columns).requires_grad_(true);
  const Tensor weight = drawn(rows, columns);
  (at::mm(a, b) * weight).sum().backward();
  const Tensor wide = weight.to(torch::kFloat64);
  CHECK(difference(a.grad(), at::mm(wide, b.detach().to(torch::kFloat64).t())) < 1e-3);
  CHECK(difference(b.grad(), at::mm(a.detach().to(torch::kFloat64).t(), wide)) < 1e-3);
}

TEST_CASE("the scratch memory of an fp32 product by oneDNN is bounded") {
  use_products();
  at::set_num_threads(1);
  for (const int64_t size : {512, 1536, 3000}) {
    const Tensor left = drawn(512, size), right = drawn(640, size);
    Tensor out = at::empty({512, 640}), transposed = at::empty({size, size});
    MemoryAccount account;
    const AccountScope scope(account);
    at::mm_out(out, left, right.t());
    at::mm_out(transposed, left.t(), left);
    CHECK(account.current() == 0);
    CHECK(account.peak() <= (64 + 256) * 1040 * 4 + 2048);
  }
}
