// The loss of a divided vocabulary: values, gradients, chunks and errors of one rank.
#include <catch2/catch_test_macros.hpp>

#include "runner/models/cross_entropy.hpp"
#include "test_model.hpp"
#include "tests/support/thread_world.hpp"

using namespace runner;
using namespace runner::testing;
using torch::Tensor;

namespace {

constexpr int64_t tokens = 37, vocabulary = 61;

struct Problem {
  explicit Problem(torch::ScalarType dtype) {
    auto generator = at::detail::createCPUGenerator(3);
    auto draw = [&](at::IntArrayRef sizes) {
      return at::normal(0.0, 0.7, sizes, generator, torch::kFloat64).to(dtype);
    };
    hidden = draw({tokens, 12});
    weight = draw({vocabulary, 12});
    targets = at::randint(0, vocabulary, {tokens}, generator, torch::kInt64);
    targets.index_put_({torch::arange(0, tokens, 5)}, torch::tensor(-100, torch::kInt64));
  }
  Tensor hidden, weight, targets;
};

struct Result {
  Tensor loss, evaluated, hidden_gradient, weight_gradient;
};

Result result_of(const Problem& p, int64_t chunk, double softcap, const VocabularyPart& part) {
  const int64_t count = part.sizes()[part.axis ? static_cast<size_t>(part.axis->rank()) : 0];
  auto hidden = p.hidden.clone().requires_grad_(true),
       weight = p.weight.narrow(0, part.first(), count).clone().requires_grad_(true);
  const LogitOptions options{.part = part, .softcap = softcap};
  auto loss = chunked_cross_entropy(hidden, weight, p.targets, chunk, options);
  auto gradients = torch::autograd::grad({loss * 0.37}, {hidden, weight});
  torch::NoGradGuard no_grad;
  return {loss.detach(), chunked_cross_entropy(hidden, weight, p.targets, chunk, options), gradients[0], gradients[1]};
}

std::vector<Result> on_ranks(const Problem& p, int ranks, int64_t chunk, double softcap) {
  std::vector<Result> results(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](World& world) {
    const TensorAxis axis(world.group, {.ranks = ranks, .rank = world.rank});
    results[static_cast<size_t>(world.rank)] = result_of(p, chunk, softcap, {.tokens = vocabulary, .axis = &axis});
  });
  return results;
}

void check(torch::ScalarType dtype, double tolerance) {
  const Problem p(dtype);
  for (int ranks : {1, 2, 3, 4})
    for (int64_t chunk : {0, 5, 1000})
      for (double softcap : {0.0, 1.5}) {
        CAPTURE(ranks, chunk, softcap);
        const auto expected = result_of(p, chunk, softcap, {.tokens = vocabulary});
        const auto results = on_ranks(p, ranks, chunk, softcap);
        auto hidden_gradient = torch::zeros_like(expected.hidden_gradient);
        std::vector<Tensor> weight_gradients;
        for (const auto& result : results) {
          CHECK(torch::equal(result.loss, results[0].loss));
          CHECK(torch::equal(result.evaluated, results[0].evaluated));
          hidden_gradient += result.hidden_gradient;
          weight_gradients.push_back(result.weight_gradient);
        }
        CHECK(results[0].loss.scalar_type() == expected.loss.scalar_type());
        CHECK(relative_error(results[0].loss, expected.loss) < std::min(tolerance, 1e-3));
        CHECK(relative_error(results[0].evaluated, expected.loss) < std::min(tolerance, 1e-3));
        CHECK(relative_error(hidden_gradient, expected.hidden_gradient) < tolerance);
        CHECK(relative_error(torch::cat(weight_gradients), expected.weight_gradient) < tolerance);
      }
}

}  // namespace

TEST_CASE("the loss and its gradients are those of one rank, for uneven parts of the vocabulary") {
  check(torch::kFloat64, 1e-12);
  check(torch::kFloat32, 1e-5);
  check(torch::kBFloat16, 0.02);  // logits are overwritten by their gradient
}

TEST_CASE("each chunk makes one gather of three values per token") {
  const Problem p(torch::kFloat32);
  std::vector<uint64_t> bytes;
  run_ranks(2, [&](World& world) {
    const TensorAxis axis(world.group, {.ranks = 2, .rank = world.rank});
    if (world.rank == 0)
      world.trace->observe([&](const CollectiveCall& call) { bytes.push_back(call.operation.bytes); });
    result_of(p, 20, 0, {.tokens = vocabulary, .axis = &axis});
  });
  const std::vector<uint64_t> one_loss = {2 * 3 * 20 * 4, 2 * 3 * 17 * 4};
  auto both = one_loss;  // with and without gradients
  both.insert(both.end(), one_loss.begin(), one_loss.end());
  CHECK(bytes == both);
}

TEST_CASE("logits far apart between ranks neither overflow nor vanish") {
  Problem p(torch::kFloat32);
  p.weight.narrow(0, 40, 21).mul_(100);  // the last rank has by far the largest ones
  const auto expected = result_of(p, 0, 0, {.tokens = vocabulary});
  const auto results = on_ranks(p, 3, 0, 0);
  CHECK(relative_error(results[0].loss, expected.loss) < 1e-5);
  CHECK(relative_error(results[2].weight_gradient, expected.weight_gradient.narrow(0, 41, 20)) < 1e-4);
}

TEST_CASE("a target outside of the divided vocabulary is refused, and an infinite logit gives NaN") {
  for (auto dtype : {torch::kFloat32, torch::kBFloat16}) {
    Problem p(dtype);
    auto infinite = p;
    infinite.weight = p.weight.clone();
    infinite.weight[60].fill_(INFINITY);
    infinite.hidden = p.hidden.abs();
    CHECK(on_ranks(infinite, 2, 0, 0)[0].loss.isnan().item<bool>());
    for (int64_t wrong : {vocabulary, int64_t{-1}}) {
      p.targets[3] = wrong;
      std::string message;
      try {
        on_ranks(p, 2, 0, 0);
      } catch (const std::exception& error) {
        message = error.what();
      }
      CHECK(message.find("a target is outside the vocabulary of 61 tokens") != std::string::npos);
    }
  }
}
