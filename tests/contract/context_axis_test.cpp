// The ranks of a context axis cut the tokens of rows, and put those of all ranks together again.
#include "strategies/contract/context_axis.hpp"

#include <catch2/catch_test_macros.hpp>

#include "strategies/engine/token_batch.hpp"
#include "tests/support/thread_world.hpp"

using namespace runner;
using namespace runner::testing;
using torch::Tensor;

namespace {

constexpr int64_t rows = 2, heads = 12, head_dim = 3;

/// Runs body(axis) on each rank of a context axis, and returns the results. Assertions are on the main thread only.
std::vector<Tensor> on_ranks(int ranks, const std::function<Tensor(const ContextAxis&)>& body) {
  std::vector<Tensor> results(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](World& world) {
    ContextRing ring;
    for (int from = 0; from < ranks; ++from) {
      auto channel = make_channel(world, "keys", from, (from + 1) % ranks);
      if (world.rank == from) ring.to_next = channel;
      if (world.rank == (from + 1) % ranks) ring.from_previous = channel;
    }
    const ContextAxis axis(world.group, {.ranks = ranks, .rank = world.rank, .form = ContextForm::ring}, ring);
    results[static_cast<size_t>(world.rank)] = body(axis);
  });
  return results;
}

/// Values that name their row, token, head and element.
Tensor complete(int64_t tokens) {
  return torch::arange(rows * tokens * heads * head_dim, torch::kFloat64).view({rows, tokens, heads, head_dim});
}

Tensor own_of(const Tensor& all, const ContextAxis& axis, int rank) {
  std::vector<Tensor> parts;
  for (const auto& span : axis.tokens_of(rank, all.size(1))) parts.push_back(all.narrow(1, span.position, span.length));
  return at::cat(parts, 1);
}

}  // namespace

TEST_CASE("each rank has a chunk of tokens and the one that is as far from the end") {
  const std::vector<std::vector<int64_t>> expected = {{0, 1, 10, 11}, {2, 3, 8, 9}, {4, 5, 6, 7}};
  for (int rank = 0; rank < 3; ++rank) {
    const ContextDivision division{.ranks = 3, .rank = rank};
    const auto inputs = torch::arange(100, 111).view({1, 11}), targets = inputs + 50;
    const auto batch = cut_tokens({inputs, targets}, division);
    CHECK(batch.rows == 1);
    CHECK(batch.padded_tokens == 12);
    CHECK(batch.row_tokens == 11);
    CHECK_FALSE(batch.all_positions.defined());
    const auto places = torch::tensor(expected[static_cast<size_t>(rank)]).unsqueeze(0);
    const auto padding = places == 11;
    REQUIRE(batch.host_fields.size() == 3);
    CHECK(torch::equal(batch.host_fields[token_field::inputs], (places + 100).masked_fill(padding, 0)));
    CHECK(torch::equal(batch.host_fields[token_field::targets], (places + 150).masked_fill(padding, ignored_target)));
    CHECK(torch::equal(batch.host_fields[token_field::positions], places.masked_fill(padding, 0)));
  }
}

TEST_CASE("packed rows keep the positions of all tokens, and padding is a sequence of its own") {
  const auto inputs = torch::arange(7).view({1, 7});
  const auto positions = torch::tensor({0, 1, 2, 0, 1, 2, 3}).view({1, 7});
  const auto batch = cut_tokens({inputs, inputs, positions}, {.ranks = 2, .rank = 1});
  CHECK(torch::equal(batch.all_positions, torch::tensor({0, 1, 2, 0, 1, 2, 3, 0}).view({1, 8})));
  CHECK(torch::equal(batch.host_fields[token_field::positions], torch::tensor({2, 0, 1, 2}).view({1, 4})));
}

TEST_CASE("the padding of a row that is shorter than its padding has positions of the row") {
  const auto inputs = torch::zeros({1, 1}, torch::kInt64);
  const auto batch = cut_tokens({inputs, inputs}, {.ranks = 4, .rank = 3});
  CHECK(batch.padded_tokens == 8);
  CHECK(batch.host_fields[token_field::positions].max().item<int64_t>() == 0);
}

TEST_CASE("gathered tokens have the order of rows, and a scattered sum is the reverse") {
  for (int ranks : {1, 2, 3, 4}) {
    const auto all = complete(2 * ranks * 3);
    const auto gathered =
        on_ranks(ranks, [&](const ContextAxis& axis) { return axis.gather(own_of(all, axis, axis.rank())); });
    for (const auto& one : gathered) CHECK(torch::equal(one, all));
    const auto sums = on_ranks(ranks, [&](const ContextAxis& axis) {
      const auto sum = axis.scattered_sum(all * (axis.rank() + 1));
      return sum - own_of(all, axis, axis.rank()) * (ranks * (ranks + 1) / 2);
    });
    for (const auto& difference : sums) CHECK(difference.abs().max().item<double>() == 0);
  }
}

TEST_CASE("heads are exchanged for tokens and back, several tensors in one collective") {
  for (int ranks : {1, 2, 3, 4}) {
    const auto all = complete(2 * ranks * 2);
    const auto wrong = on_ranks(ranks, [&](const ContextAxis& axis) {
      const auto own = own_of(all, axis, axis.rank());
      const auto first = axis.all_tokens({own, own.narrow(2, 0, ranks)});
      const int64_t share = heads / ranks;
      auto differ = first[0].ne(all.narrow(2, axis.rank() * share, share)).sum() +
                    first[1].ne(all.narrow(2, axis.rank(), 1)).sum();
      const auto back = axis.all_heads(first);
      return differ + back[0].ne(own).sum() + back[1].ne(own.narrow(2, 0, ranks)).sum();
    });
    for (const auto& count : wrong) CHECK(count.item<int64_t>() == 0);
  }
}

TEST_CASE("messages go around the ring") {
  for (int ranks : {2, 3, 4}) {
    const auto received = on_ranks(ranks, [&](const ContextAxis& axis) {
      auto value = torch::full({5}, static_cast<double>(axis.rank()), torch::kFloat64);
      for (int hop = 0; hop < ranks - 1; ++hop) value = axis.exchange(value, hop).wait();
      return value;
    });
    for (int rank = 0; rank < ranks; ++rank)
      CHECK(received[static_cast<size_t>(rank)].eq((rank + 1) % ranks).all().item<bool>());
  }
}
