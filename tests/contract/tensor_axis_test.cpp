// The functions of a tensor axis compute the values and the gradients of one rank.
#include "strategies/contract/tensor_axis.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/support/thread_world.hpp"

using namespace runner;
using namespace runner::testing;
using torch::Tensor;

namespace {

Tensor drawn(at::IntArrayRef sizes, uint64_t seed) {
  return at::normal(0.0, 1.0, sizes, at::detail::createCPUGenerator(seed), torch::kFloat64);
}

double error_of(const Tensor& actual, const Tensor& expected) {
  if (actual.sizes() != expected.sizes()) return INFINITY;
  return actual.numel() == 0 ? 0 : (actual - expected).abs().max().item<double>();
}

struct Case {
  int ranks;
  bool sequence_parallel;
  int64_t rows, hidden;  ///< of which each rank has some columns, or none
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int ranks : {1, 2, 3, 4})
    for (bool sequence_parallel : {false, true})
      for (int64_t rows : {0, 1, 5, 8, 12})
        for (int64_t hidden : {2, 7}) all.push_back({ranks, sequence_parallel, rows, hidden});
  return all;
}

/// The columns of a rank: as equal as possible, the last ranks may have none.
std::pair<int64_t, int64_t> columns_of(const Case& c, int rank) {
  const int64_t each = (c.hidden + c.ranks - 1) / c.ranks;
  return {std::min(c.hidden, each * rank), std::min(c.hidden, each * (rank + 1))};
}

/// Runs body(axis) on each rank of a case and returns the results. Assertions are on the main thread only.
template <class Result>
std::vector<Result> on_ranks(const Case& c, const std::function<Result(const TensorAxis&)>& body) {
  std::vector<Result> results(static_cast<size_t>(c.ranks));
  run_ranks(c.ranks, [&](World& world) {
    const TensorAxis axis(world.group,
                          {.ranks = c.ranks, .rank = world.rank, .sequence_parallel = c.sequence_parallel});
    results[static_cast<size_t>(world.rank)] = body(axis);
  });
  return results;
}

/// Two layers x += tanh(x W^T) V^T, each followed by a factor of the stream.
struct Layers {
  explicit Layers(const Case& c)
      : x(drawn({c.rows, 3}, 1)),
        scale(drawn({3}, 2)),
        up{drawn({c.hidden, 3}, 3), drawn({c.hidden, 3}, 4)},
        down{drawn({3, c.hidden}, 5), drawn({3, c.hidden}, 6)},
        slope(drawn({c.rows, 3}, 7)) {}
  Tensor x, scale;
  std::vector<Tensor> up, down;
  Tensor slope;  ///< the loss is the sum of the last stream times this
};

struct Passed {
  Tensor y, x_gradient, scale_gradient;
  std::vector<Tensor> up_gradients, down_gradients;
};

Passed on_one_rank(const Layers& layers) {
  auto leaf = [](const Tensor& t) { return t.clone().requires_grad_(true); };
  const auto x = leaf(layers.x), scale = leaf(layers.scale);
  std::vector<Tensor> up{leaf(layers.up[0]), leaf(layers.up[1])}, down{leaf(layers.down[0]), leaf(layers.down[1])};
  auto y = x;
  for (size_t l = 0; l < 2; ++l) y = (y + at::linear(at::linear(y, up[l]).tanh(), down[l])) * scale;
  (y * layers.slope).sum().backward();
  return {y.detach(), x.grad(), scale.grad(), {up[0].grad(), up[1].grad()}, {down[0].grad(), down[1].grad()}};
}

Passed on_rank(const Layers& layers, const Case& c, const TensorAxis& axis) {
  auto leaf = [](const Tensor& t) { return t.clone().requires_grad_(true); };
  const auto [first, end] = columns_of(c, axis.rank());
  const int64_t count = end - first;
  const auto x = leaf(axis.own_rows(layers.x)), scale = leaf(layers.scale);
  std::vector<Tensor> up, down;
  for (size_t l = 0; l < 2; ++l) {
    up.push_back(leaf(layers.up[l].narrow(0, first, count)));
    down.push_back(leaf(layers.down[l].narrow(1, first, count)));
  }
  auto y = x;
  for (size_t l = 0; l < 2; ++l) {
    const auto hidden = at::linear(axis.enter(y, c.rows), up[l]).tanh();
    y = (y + axis.leave(at::linear(hidden, down[l]))) * scale;
  }
  (y * axis.own_rows(layers.slope)).sum().backward();
  return {y.detach(), x.grad(), scale.grad(), {up[0].grad(), up[1].grad()}, {down[0].grad(), down[1].grad()}};
}

}  // namespace

TEST_CASE("two layers of divided matrices have the values and the gradients of one rank") {
  for (const auto& c : cases()) {
    CAPTURE(c.ranks, c.sequence_parallel, c.rows, c.hidden);
    const Layers layers(c);
    const auto expected = on_one_rank(layers);
    const auto ranks = on_ranks<Passed>(c, [&](const TensorAxis& axis) { return on_rank(layers, c, axis); });
    const auto whole = [&](auto member) {  // of a tensor with the rows of the stream
      if (!c.sequence_parallel) return ranks[0].*member;
      std::vector<Tensor> parts;
      for (const auto& rank : ranks) parts.push_back(rank.*member);
      return at::cat(parts).narrow(0, 0, c.rows);
    };
    CHECK(error_of(whole(&Passed::y), expected.y) < 1e-12);
    CHECK(error_of(whole(&Passed::x_gradient), expected.x_gradient) < 1e-12);
    auto scale = torch::zeros({3}, torch::kFloat64);
    for (int rank = 0; rank < c.ranks; ++rank) {
      const auto& passed = ranks[static_cast<size_t>(rank)];
      const auto [first, end] = columns_of(c, rank);
      for (size_t l = 0; l < 2; ++l) {
        CHECK(error_of(passed.up_gradients[l], expected.up_gradients[l].narrow(0, first, end - first)) < 1e-12);
        CHECK(error_of(passed.down_gradients[l], expected.down_gradients[l].narrow(1, first, end - first)) < 1e-12);
      }
      if (c.sequence_parallel) scale += passed.scale_gradient;
      if (!c.sequence_parallel) CHECK(error_of(passed.scale_gradient, expected.scale_gradient) < 1e-12);
    }
    if (c.sequence_parallel) CHECK(error_of(scale, expected.scale_gradient) < 1e-12);
  }
}

TEST_CASE("a stream that enters twice gets the sum of both gradients") {
  for (const auto& c : cases()) {
    CAPTURE(c.ranks, c.sequence_parallel, c.rows);
    const auto x = drawn({c.rows, 3}, 1), a = drawn({c.rows, 3}, 2), b = drawn({c.rows, 3}, 3);
    const auto gradients = on_ranks<Tensor>(c, [&](const TensorAxis& axis) {
      auto own = axis.own_rows(x).clone().requires_grad_(true);
      auto sum = (axis.enter(own, c.rows) * a).sum() + (axis.enter(own, c.rows).sin() * b).sum();
      return torch::autograd::grad({sum}, {own})[0];
    });
    const auto expected = c.ranks * (a + x.cos() * b);  // every rank uses all rows
    for (int rank = 0; rank < c.ranks; ++rank) {
      const TensorDivision division{.ranks = c.ranks, .rank = rank, .sequence_parallel = c.sequence_parallel};
      const int64_t count = division.divides_rows() ? (c.rows + c.ranks - 1) / c.ranks : c.rows;
      const int64_t first = division.divides_rows() ? std::min(c.rows, count * rank) : 0,
                    here = std::min(count, c.rows - first);
      const auto& gradient = gradients[static_cast<size_t>(rank)];
      REQUIRE(gradient.size(0) == count);
      CHECK(error_of(gradient.narrow(0, 0, here), expected.narrow(0, first, here)) < 1e-12);
      CHECK(gradient.narrow(0, here, count - here).abs().sum().item<double>() == 0);  // padding
    }
  }
}

TEST_CASE("columns of unequal ranks are joined in the order of ranks, and each gets the gradient of its own") {
  for (const auto& c : cases()) {
    CAPTURE(c.ranks, c.rows, c.hidden);
    const auto x = drawn({c.rows, c.hidden}, 1), slope = drawn({c.rows, c.hidden}, 2);
    std::vector<int64_t> sizes;
    for (int rank = 0; rank < c.ranks; ++rank) sizes.push_back(columns_of(c, rank).second - columns_of(c, rank).first);
    struct Joined {
      Tensor value, without_graph, gradient;
    };
    const auto ranks = on_ranks<Joined>(c, [&](const TensorAxis& axis) {
      const auto [first, end] = columns_of(c, axis.rank());
      auto own = x.narrow(1, first, end - first).clone().requires_grad_(true);
      auto joined = axis.join_columns(own, sizes);
      auto gradient = torch::autograd::grad({(joined * slope).sum()}, {own})[0];
      torch::NoGradGuard no_grad;
      return Joined{joined.detach(), axis.join_columns(own, sizes), gradient};
    });
    for (int rank = 0; rank < c.ranks; ++rank) {
      const auto [first, end] = columns_of(c, rank);
      const auto& joined = ranks[static_cast<size_t>(rank)];
      CHECK(torch::equal(joined.value, x));
      CHECK(torch::equal(joined.without_graph, x));
      CHECK(torch::equal(joined.gradient, slope.narrow(1, first, end - first)));
    }
  }
}

TEST_CASE("gather has the values of all ranks in their order, and sums have the same bits on all ranks") {
  const Case c{.ranks = 4, .sequence_parallel = true, .rows = 0, .hidden = 0};
  const auto values = drawn({4, 2, 3}, 1).to(torch::kFloat32);
  using Pair = std::pair<Tensor, Tensor>;
  const auto ranks = on_ranks<Pair>(c, [&](const TensorAxis& axis) {
    return Pair{axis.gather(values[axis.rank()].t()), axis.sum(values[axis.rank()])};
  });
  for (const auto& [gathered, sum] : ranks) {
    CHECK(torch::equal(gathered, values.transpose(1, 2)));
    CHECK(torch::equal(sum, ranks[0].second));
    CHECK(torch::allclose(sum, values.sum(0)));
  }
}

TEST_CASE("an unused result is not communicated in forward, and has the same gradient") {
  for (bool sequence_parallel : {false, true}) {
    CAPTURE(sequence_parallel);
    const auto x = drawn({5, 3}, 1), slope = drawn({5, 3}, 2);
    std::vector<Tensor> gradients(2);
    std::vector<uint64_t> calls(2);
    run_ranks(2, [&](World& world) {
      const TensorAxis axis(world.group, {.ranks = 2, .rank = world.rank, .sequence_parallel = sequence_parallel});
      std::vector<Tensor> of_rank;
      uint64_t made = 0;
      for (bool unused : {false, true}) {
        const auto products = x.clone().requires_grad_(true);
        const auto before = world.trace->count();
        const auto y = axis.leave(products * 1, unused);
        if (unused) made = world.trace->count() - before;
        of_rank.push_back(torch::autograd::grad({(y * axis.own_rows(slope)).sum()}, {products})[0]);
      }
      if (world.rank > 0) return;
      gradients = of_rank;
      calls[0] = made;
    });
    CHECK(calls[0] == 0);
    CHECK(torch::equal(gradients[0], slope));
    CHECK(torch::equal(gradients[1], slope));
  }
}

TEST_CASE("functions work in inference mode, without changing their results") {
  for (bool sequence_parallel : {false, true}) {
    const Case c{.ranks = 2, .sequence_parallel = sequence_parallel, .rows = 5, .hidden = 4};
    const Layers layers(c);
    const auto run = [&](const TensorAxis& axis) {
      const auto [first, end] = columns_of(c, axis.rank());
      const auto hidden = at::linear(axis.enter(axis.own_rows(layers.x), c.rows), layers.up[0].narrow(0, first, 2));
      return axis.leave(at::linear(hidden, layers.down[0].narrow(1, first, 2)));
    };
    const auto expected = on_ranks<Tensor>(c, run), actual = on_ranks<Tensor>(c, [&](const TensorAxis&axis) {
                                                      const torch::InferenceMode inference;
                                                      return run(axis);
                                                    });
    for (size_t rank = 0; rank < 2; ++rank) CHECK(torch::equal(expected[rank], actual[rank]));
  }
}
