// Attention of context ranks over rows of several tiles and blocks of keys, and the masks of a rank's tokens.
#include <catch2/catch_test_macros.hpp>

#include "context_model.hpp"
#include "runner/models/attention.hpp"
#include "runner/models/context_attention.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

constexpr int64_t heads = 4, key_heads = 2, head_dim = 16;

struct Rows {
  torch::Tensor q, k, v, weight;  ///< [2, T, heads, head_dim]
  torch::Tensor positions = {};   ///< [2, T], undefined: rows are single sequences

  Rows(int64_t length, torch::ScalarType dtype, bool packed) {
    torch::manual_seed(5);
    q = torch::randn({2, length, heads, head_dim}, torch::kFloat64).to(dtype);
    k = torch::randn({2, length, key_heads, head_dim}, torch::kFloat64).to(dtype);
    v = torch::randn({2, length, key_heads, head_dim}, torch::kFloat64).to(dtype);
    weight = torch::randn({2, length, heads, head_dim}, torch::kFloat64).to(dtype);
    if (packed)
      positions = torch::arange(length).remainder(torch::tensor({length - 1, int64_t{170}}).unsqueeze(1)).contiguous();
  }
};

/// The result and the gradients of q, k and v.
using Results = std::vector<torch::Tensor>;

Results with_gradients(torch::Tensor q, torch::Tensor k, torch::Tensor v, const torch::Tensor& weight,
                       const std::function<torch::Tensor(const Results&)>& attention) {
  Results in = {q.detach().requires_grad_(true), k.detach().requires_grad_(true), v.detach().requires_grad_(true)};
  auto rows = attention(in).view(q.sizes());
  auto results = torch::autograd::grad({(rows * weight).sum()}, in);
  results.insert(results.begin(), rows.detach());
  return results;
}

Results of_one_rank(const Rows& rows, const AttentionForm& form, const PlacedDropout& dropout) {
  return with_gradients(rows.q, rows.k, rows.v, rows.weight, [&](const Results& in) {
    return attention_of_rows(in[0], in[1], in[2], dropout, form, {rows.positions, rows.positions});
  });
}

Results of_ranks(const Rows& rows, const AttentionForm& form, const PlacedDropout& dropout, int ranks,
                 ContextForm how) {
  const int64_t length = rows.q.size(1);
  Results whole;
  std::vector<Results> of_rank(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](World& world) {
    const ContextDivision division{.ranks = ranks, .rank = world.rank, .form = how};
    const ContextAxis axis(world.group, division, make_ring(world, "keys", 0, 1, ranks));
    const int64_t padded = division.padded(length);
    const auto own = [&](const torch::Tensor& x) {
      const auto all = at::constant_pad_nd(x, {0, 0, 0, 0, 0, padded - length}, 0.5);
      std::vector<torch::Tensor> parts;
      for (const auto& span : axis.tokens_of(world.rank, padded))
        parts.push_back(all.narrow(1, span.position, span.length));
      return at::cat(parts, 1);
    };
    MicroBatch batch{.rows = 2, .padded_tokens = padded, .row_tokens = length};
    if (rows.positions.defined())
      batch.all_positions = at::cat({rows.positions, torch::arange(padded - length).expand({2, -1})}, 1).contiguous();
    auto weight = own(rows.weight);
    for (const auto& span : axis.tokens_of(world.rank, padded))
      if (span.end() > length) weight.narrow(1, span.index + length - span.position, span.end() - length).zero_();
    of_rank[static_cast<size_t>(world.rank)] = with_gradients(
        own(rows.q), own(rows.k), own(rows.v), weight,
        [&](const Results& in) { return context_attention(in[0], in[1], in[2], dropout, form, axis, batch); });
    auto& mine = of_rank[static_cast<size_t>(world.rank)];
    for (auto& one : mine) one = axis.gather(one).narrow(1, 0, length);
  });
  return of_rank[0];
}

void check(const Rows& rows, const AttentionForm& form, const PlacedDropout& dropout, double tolerance) {
  const auto expected = of_one_rank(rows, form, dropout);
  for (int ranks : {2, 3, 4})
    for (auto how : {ContextForm::gather, ContextForm::ring, ContextForm::ulysses}) {
      if (how == ContextForm::ulysses && heads % ranks != 0) continue;
      INFO(ranks << " ranks, " << name_of(how) << ", window " << form.window << ", cap " << form.softcap << ", packed "
                 << rows.positions.defined() << ", dropout " << dropout.p);
      const auto actual = of_ranks(rows, form, dropout, ranks, how);
      for (size_t i = 0; i < expected.size(); ++i) {
        INFO("result " << i);
        CHECK(relative_error(actual[i], expected[i]) < tolerance);
      }
    }
}

}  // namespace

TEST_CASE("attention of long rows on context ranks is that of one rank") {
  for (bool packed : {false, true})
    for (const auto& form : {AttentionForm{}, AttentionForm{.scale = 0.4, .window = 150}, AttentionForm{.softcap = 1.5},
                             AttentionForm{.window = 40, .softcap = 1.5}}) {
      check({597, torch::kFloat64, packed}, form, {}, 1e-12);
      check({597, torch::kFloat32, packed}, form, {}, 1e-5);
      check({300, torch::kBFloat16, packed}, form, {}, 4e-2);
      check({300, torch::kFloat64, packed}, form, {.p = 0.3, .place = {.key = 7, .first_row = 3, .rows = 2}}, 1e-12);
    }
}

TEST_CASE("the mask of a rank's tokens is that of the same tokens of complete rows, with padding behind them") {
  using Mask = torch::Tensor (*)(at::IntArrayRef, torch::Device, double, const MaskPlace&);
  constexpr int64_t length = 10, rows = 3, width = 7;
  const MaskPlace place{.key = 5, .first_row = 3, .rows = rows};
  for (Mask mask : {&keep_mask, &generated_mask}) {
    const auto whole = mask({rows * length, width}, torch::kCPU, 0.4, place).view({rows, length, width});
    const auto padded = at::constant_pad_nd(whole, {0, 0, 0, 2}, 0);  // 12 tokens, chunks of 2
    for (int rank = 0; rank < 3; ++rank) {
      auto of_rank = place;
      of_rank.tokens = {.chunks = {2 * rank, 2 * (5 - rank)}, .chunk = 2, .whole = length};
      auto own = mask({rows * 4, width}, torch::kCPU, 0.4, of_rank).view({rows, 4, width});
      CHECK(torch::equal(own.narrow(1, 0, 2), padded.narrow(1, 2 * rank, 2)));
      if (rank > 0) CHECK(torch::equal(own.narrow(1, 2, 2), padded.narrow(1, 2 * (5 - rank), 2)));
      own = own.reshape({rows * 4, width});
      // Rows of the stream of a tensor axis.
      for (int64_t first : {0, 3, 5}) {
        of_rank.parts = {{.dim = 0, .first = first, .whole = rows * 4}};
        CHECK(torch::equal(mask({5, width}, torch::kCPU, 0.4, of_rank), own.narrow(0, first, 5)));
      }
    }
  }
}

TEST_CASE("the mask of some heads, queries and keys is that part of the whole mask") {
  using Mask = torch::Tensor (*)(at::IntArrayRef, torch::Device, double, const MaskPlace&);
  const MaskPlace place{.key = 5, .first_row = 3, .rows = 2};
  for (Mask mask : {&keep_mask, &generated_mask}) {
    const auto whole = mask({2, 4, 9, 9}, torch::kCPU, 0.4, place);
    auto part = place;
    part.parts = {
        {.dim = 1, .first = 1, .whole = 4}, {.dim = 2, .first = 6, .whole = 9}, {.dim = 3, .first = 5, .whole = 9}};
    const auto own = mask({2, 2, 4, 5}, torch::kCPU, 0.4, part);  // of which one query and one key are padding
    CHECK(torch::equal(own.narrow(2, 0, 3).narrow(3, 0, 4), whole.narrow(1, 1, 2).narrow(2, 6, 3).narrow(3, 5, 4)));
  }
}
