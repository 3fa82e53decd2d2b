// Chunked cross entropy compared with at::cross_entropy_loss: value, gradients, chunk sizes, ignored targets,
// precisions.
#include "runner/models/cross_entropy.hpp"
#include "runner/models/cross_entropy_loops.hpp"
#include "runner/models/token_loss.hpp"

#include "test_model.hpp"

#include <ATen/autocast_mode.h>

#include <catch2/catch_test_macros.hpp>

using namespace runner;
using namespace runner::testing;

namespace {

struct Problem {
  explicit Problem(torch::ScalarType dtype, bool ignore = true, int64_t tokens = 37) {
    auto generator = at::detail::createCPUGenerator(3);
    auto draw = [&](at::IntArrayRef sizes) {
      return at::normal(0.0, 0.7, sizes, generator, torch::kFloat64).to(dtype).requires_grad_(true);
    };
    hidden = draw({tokens, 12});
    weight = draw({50, 12});
    targets = at::randint(0, 50, {tokens}, generator, torch::kInt64);
    if (ignore) targets.index_put_({torch::arange(0, tokens, 5)}, torch::tensor(-100, torch::kInt64));
  }
  torch::Tensor hidden, weight, targets;
};

torch::Tensor plain(const Problem& p, torch::ScalarType dtype) {
  return at::cross_entropy_loss(at::linear(p.hidden, p.weight).to(dtype), p.targets, {}, at::Reduction::Sum, -100);
}

}  // namespace

TEST_CASE("loss and gradients equal those of cross entropy, for every chunk size") {
  Problem p(torch::kFloat64);
  auto expected = plain(p, torch::kFloat64);
  auto gradients = torch::autograd::grad({expected * 0.37}, {p.hidden, p.weight});
  for (int64_t chunk : {0, 1, 5, 16, 36, 37, 1000}) {
    CAPTURE(chunk);
    auto loss = chunked_cross_entropy(p.hidden, p.weight, p.targets, chunk);
    CHECK(relative_error(loss, expected) < 1e-13);
    auto actual = torch::autograd::grad({loss * 0.37}, {p.hidden, p.weight});
    CHECK(relative_error(actual[0], gradients[0]) < 1e-12);
    CHECK(relative_error(actual[1], gradients[1]) < 1e-12);
  }
}

TEST_CASE("without gradients the loss is equal and nothing is saved") {
  Problem p(torch::kFloat32);
  torch::NoGradGuard no_grad;
  for (int64_t chunk : {0, 7}) {
    auto loss = chunked_cross_entropy(p.hidden, p.weight, p.targets, chunk);
    CHECK_FALSE(loss.requires_grad());
    CHECK(relative_error(loss, plain(p, torch::kFloat32)) < 1e-6);
  }
}

TEST_CASE("an ignored target contributes neither loss nor gradient") {
  Problem p(torch::kFloat64);
  p.targets.fill_(-100);
  auto loss = chunked_cross_entropy(p.hidden, p.weight, p.targets, 8);
  CHECK(loss.item<double>() == 0);
  for (const auto& gradient : torch::autograd::grad({loss}, {p.hidden, p.weight}))
    CHECK(gradient.abs().max().item<double>() == 0);
}

TEST_CASE("half precision keeps the loss in fp32 and sums the weight's gradient over chunks in fp32") {
  for (auto dtype : {torch::kBFloat16, torch::kFloat16}) {
    Problem p(dtype, false, 512);
    Problem wide(torch::kFloat64, false, 512);
    wide.hidden = p.hidden.detach().to(torch::kFloat64).requires_grad_(true);
    wide.weight = p.weight.detach().to(torch::kFloat64).requires_grad_(true);
    auto expected = torch::autograd::grad({plain(wide, torch::kFloat64)}, {wide.hidden, wide.weight});
    auto loss = chunked_cross_entropy(p.hidden, p.weight, p.targets, 8);
    CHECK(loss.scalar_type() == torch::kFloat32);
    CHECK(relative_error(loss, plain(wide, torch::kFloat64)) < 1e-3);
    auto actual = torch::autograd::grad({loss}, {p.hidden, p.weight});
    CHECK(actual[0].scalar_type() == dtype);
    CHECK(actual[1].scalar_type() == dtype);
    // 64 partial sums: in pure bf16 the error would be much larger than one rounding.
    CHECK(relative_error(actual[1], expected[1]) < 0.01);
  }
}

TEST_CASE(
    "the weight's gradient in float16 is finite where its sum over tokens is not, if the loss scale makes it small") {
  constexpr int64_t tokens = 2048;
  const TokenLoss own = [](const torch::Tensor& logits, const torch::Tensor& targets) {
    return at::cross_entropy_loss(logits, targets, {}, at::Reduction::None);
  };
  for (const auto of_weight : {torch::kFloat16, torch::kFloat32})
    for (const int64_t chunk : {0, 1024})
      for (const bool hooked : {false, true}) {
        CAPTURE(of_weight, chunk, hooked);
        const auto hidden = torch::full({tokens, 4}, 100, torch::kFloat16).requires_grad_(true);
        const auto weight = torch::zeros({50, 4}, of_weight).requires_grad_(true);
        const auto targets = torch::full({tokens}, 7, torch::kInt64);
        const auto loss = hooked ? chunked_token_loss(hidden, weight, targets, chunk, own)
                                 : chunked_cross_entropy(hidden, weight, targets, chunk);
        const auto gradient = torch::autograd::grad({loss / tokens}, {weight})[0];
        CHECK(gradient.scalar_type() == of_weight);
        // Each token's is (1 / 50 - 1) * 100, and their sum -200704.
        CHECK(std::abs(gradient[7][0].item<double>() + 98) < 0.1);
        CHECK(std::abs(gradient[8][0].item<double>() - 2) < 0.01);
      }
}

TEST_CASE("bfloat16 logits are overwritten by their gradient, for every number of columns") {
  for (int64_t columns : {1, 31, 50, 2048, 5000}) {
    CAPTURE(columns);
    auto logits =
        at::normal(0.0, 3.0, {3, columns}, at::detail::createCPUGenerator(5), torch::kFloat32).to(torch::kBFloat16);
    auto targets = torch::tensor({columns - 1, int64_t{-100}, columns / 2}, torch::kInt64), losses = torch::empty({3});
    auto wide = logits.to(torch::kFloat64).requires_grad_(true);
    auto expected = at::cross_entropy_loss(wide, targets, {}, at::Reduction::None, -100);
    auto gradient = torch::autograd::grad({expected.sum()}, {wide})[0];
    cross_entropy_rows(reinterpret_cast<uint16_t*>(logits.data_ptr<at::BFloat16>()), 3, columns,
                       targets.data_ptr<int64_t>(), -100, losses.data_ptr<float>());
    CHECK((losses - expected).abs().max().item<double>() < 1e-5);
    CHECK(((logits - gradient).abs() - 0.005 * gradient.abs()).max().item<double>() < 1e-6);
  }
}

TEST_CASE("an infinite bfloat16 logit gives NaN, and a target outside of the vocabulary is refused") {
  Problem p(torch::kBFloat16, false);
  {
    torch::NoGradGuard none;
    p.hidden[0].fill_(INFINITY);
  }
  CHECK(chunked_cross_entropy(p.hidden, p.weight, p.targets, 0).isnan().item<bool>());
  CHECK_THROWS(chunked_cross_entropy(p.hidden, p.weight, p.targets + 50, 0));
}

TEST_CASE("an fp32 weight gets an fp32 gradient from half-precision products") {
  Problem p(torch::kFloat32, false);
  auto hidden = p.hidden.detach().to(torch::kBFloat16).requires_grad_(true);
  for (int64_t chunk : {0, 8}) {
    auto loss = chunked_cross_entropy(hidden, p.weight, p.targets, chunk);
    auto actual = torch::autograd::grad({loss}, {hidden, p.weight});
    CHECK(actual[0].scalar_type() == torch::kBFloat16);
    CHECK(actual[1].scalar_type() == torch::kFloat32);
    auto expected = torch::autograd::grad({plain(p, torch::kFloat32)}, {p.weight});
    CHECK(relative_error(actual[1], expected[0]) < 0.02);
  }
}

TEST_CASE("a frozen weight gets no gradient") {
  Problem p(torch::kFloat32);
  p.weight.requires_grad_(false);
  chunked_cross_entropy(p.hidden, p.weight, p.targets, 8).backward();
  CHECK(p.hidden.grad().defined());
  CHECK_FALSE(p.weight.grad().defined());
}

TEST_CASE("a second backward through the same loss is rejected") {
  Problem p(torch::kFloat32);
  auto loss = chunked_cross_entropy(p.hidden, p.weight, p.targets, 8);
  torch::autograd::grad({loss}, {p.hidden}, {}, /*retain_graph=*/true);
  CHECK_THROWS_AS(torch::autograd::grad({loss}, {p.hidden}), c10::Error);
}
