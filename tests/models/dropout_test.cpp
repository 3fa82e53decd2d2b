// Dropout: masks depend only on their key, keep the expected value, and have exact gradients.
#include "runner/models/dropout.hpp"

#include "test_model.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runner/models/attention.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

ForwardContext with_key(const MicroBatch& batch, uint64_t key) { return {&batch, true, key}; }

MicroBatch sequences(int64_t count) { return {.rows = count, .fields = {}}; }

}  // namespace

TEST_CASE("a mask depends only on its key, and keeps the expected share of elements") {
  auto mask = [](uint64_t key) { return keep_mask({1000, 101}, torch::kCPU, 0.2, {key}); };
  CHECK(torch::equal(mask(1), mask(1)));
  CHECK_FALSE(torch::equal(mask(1), mask(2)));
  // 101,000 samples; five standard deviations are 0.0063.
  CHECK(std::abs(mask(1).to(torch::kFloat64).mean().item<double>() - 0.8) < 0.0063);
  auto both = (mask(1) & mask(2)).to(torch::kFloat64).mean().item<double>();
  CHECK(std::abs(both - 0.64) < 0.0076);
}

TEST_CASE("a mask does not depend on how its sequences are divided into batches") {
  for (int64_t length : {7, 8}) {
    auto whole = keep_mask({6, length}, torch::kCPU, 0.4, {5, 10, 6});
    for (int64_t cut = 1; cut < 6; ++cut) {
      auto head = keep_mask({cut, length}, torch::kCPU, 0.4, {5, 10, cut});
      auto tail = keep_mask({6 - cut, length}, torch::kCPU, 0.4, {5, 10 + cut, 6 - cut});
      CHECK(torch::equal(torch::cat({head, tail}), whole));
    }
    CHECK_FALSE(torch::equal(whole, keep_mask({6, length}, torch::kCPU, 0.4, {5, 11, 6})));
  }
}

TEST_CASE("a mask does not depend on the length to which rows are padded") {
  const MaskPlace place{.key = 5, .first_row = 3, .rows = 2};
  const auto tokens = [&](int64_t length) {
    return keep_mask({2 * length, 7}, torch::kCPU, 0.4, place).view({2, length, 7}).narrow(1, 0, 5);
  };
  CHECK(torch::equal(tokens(5), tokens(8)));
  const auto pairs = [&](int64_t length) {
    return keep_mask({2, 3, length, length}, torch::kCPU, 0.4, place).narrow(2, 0, 5).narrow(3, 0, 5);
  };
  CHECK(torch::equal(pairs(5), pairs(8)));
  // Rows, heads and positions differ from each other.
  const auto mask = pairs(8);
  CHECK_FALSE(torch::equal(mask[0], mask[1]));
  CHECK_FALSE(torch::equal(mask[0][0], mask[0][1]));
  CHECK_FALSE(torch::equal(mask[0][0][0], mask[0][0][1]));
}

TEST_CASE("the mask of a part of a tensor is the part of the whole mask, of lines, heads and columns") {
  using Mask = torch::Tensor (*)(at::IntArrayRef, torch::Device, double, const MaskPlace&);
  const MaskPlace place{.key = 5, .first_row = 3, .rows = 3};
  for (Mask mask : {&keep_mask, &generated_mask}) {
    const auto check = [&](const std::vector<int64_t>& sizes, int dim) {
      const int64_t whole = sizes[static_cast<size_t>(dim)];
      const auto all = mask(sizes, torch::kCPU, 0.4, place);
      for (int64_t first = 0; first < whole; ++first)
        for (int64_t count = 1; first + count <= whole; ++count) {
          auto part = place;
          part.parts = {{.dim = dim, .first = first, .whole = whole}};
          auto own = sizes;
          own[static_cast<size_t>(dim)] = count;
          CHECK(torch::equal(mask(own, torch::kCPU, 0.4, part), all.narrow(dim, first, count)));
        }
    };
    check({3 * 5, 7}, 0);    // rows of the stream
    check({3 * 5, 7}, 1);    // columns of an adapter's input
    check({3, 4, 5, 5}, 1);  // heads
    // Padding behind the last row.
    auto padded = place;
    padded.parts = {{.dim = 0, .first = 12, .whole = 15}};
    const auto last = mask({4, 7}, torch::kCPU, 0.4, padded);
    CHECK(torch::equal(last.narrow(0, 0, 3), mask({15, 7}, torch::kCPU, 0.4, place).narrow(0, 12, 3)));
  }
}

TEST_CASE("rows of tokens have the same mask as tokens of rows") {
  const MaskPlace place{.key = 5, .first_row = 3, .rows = 3};
  const auto flat = keep_mask({3 * 5, 7}, torch::kCPU, 0.4, place);
  CHECK(torch::equal(keep_mask({3, 5, 7}, torch::kCPU, 0.4, place), flat.view({3, 5, 7})));
}

TEST_CASE("keys differ between blocks, sites and steps") {
  MicroBatch batch = sequences(1);
  std::set<uint64_t> keys;
  for (uint64_t block : {0, 1, 2})
    for (auto site : {DropoutSite::embedding, DropoutSite::attention, DropoutSite::attention_out, DropoutSite::mlp_out})
      for (uint64_t key : {1, 2}) keys.insert(Dropout(0.1, block).place(with_key(batch, key), site).key);
  CHECK(keys.size() == 3 * 4 * 2);
}

TEST_CASE("dropout scales the kept elements, and its gradient uses the same mask") {
  MicroBatch batch = sequences(8);
  Dropout dropout(0.25, 3);
  auto context = with_key(batch, 9);
  auto x = torch::rand({40, 7}, torch::kFloat64).add_(0.5).requires_grad_(true);
  auto y = dropout(x * 1, context, DropoutSite::mlp_out);
  auto kept = keep_mask({40, 7}, torch::kCPU, 0.25, dropout.place(context, DropoutSite::mlp_out));
  auto expected = x.detach() * kept / 0.75;
  CHECK(relative_error(y, expected) < 1e-15);
  auto gradient = torch::autograd::grad({y.sum()}, {x})[0];
  CHECK(relative_error(gradient, kept.to(torch::kFloat64) / 0.75) < 1e-15);
}

TEST_CASE("attention with dropout equals the composed operations with the same mask, also in gradients") {
  MicroBatch batch = sequences(2);
  Dropout dropout(0.3, 2);
  auto context = with_key(batch, 4);
  for (int64_t key_heads : {4, 2}) {
    auto draw = [](int64_t heads) { return torch::randn({2, 9, heads, 8}, torch::kFloat64).requires_grad_(true); };
    auto q = draw(4), k = draw(key_heads), v = draw(key_heads);
    auto per_head = [](const torch::Tensor& x) { return x.repeat_interleave(4 / x.size(2), 2).transpose(1, 2); };
    auto mask = keep_mask({2, 4, 9, 9}, torch::kCPU, 0.3, dropout.place(context, DropoutSite::attention));
    auto scores = torch::matmul(per_head(q), per_head(k).transpose(-2, -1)) / std::sqrt(8.0);
    auto future = torch::ones({9, 9}, torch::kBool).triu(1);
    auto probabilities = scores.masked_fill(future, -INFINITY).softmax(-1) * mask / 0.7;
    auto expected = torch::matmul(probabilities, per_head(v)).transpose(1, 2).reshape({18, 32});
    auto actual = causal_attention(q, k, v, dropout, context);
    CHECK(relative_error(actual, expected) < 1e-12);
    auto g = torch::randn_like(expected);
    auto a = torch::autograd::grad({actual}, {q, k, v}, {g}), b = torch::autograd::grad({expected}, {q, k, v}, {g});
    for (size_t i = 0; i < 3; ++i) CHECK(relative_error(a[i], b[i]) < 1e-12);
  }
}

TEST_CASE("a block with the same context repeats its dropout bit for bit") {
  for (auto recipe : {gpt_recipe(), llama_recipe()}) {
    recipe.dropout = 0.2;
    TestModel test(recipe);
    auto batch = small_batch();
    auto losses = [&](uint64_t key, bool training = true) { return test.loss(batch, training, key).item<float>(); };
    auto first = losses(11);
    torch::rand({100});  // the default generator must not have an effect
    CHECK(losses(11) == first);
    CHECK(losses(12) != first);
    CHECK(losses(11, false) != first);
    CHECK(losses(11, false) == losses(12, false));
    {
      torch::NoGradGuard no_grad;
      ForwardContext context{&batch, true, 11};
      auto x = test.model->blocks[0]->forward({}, context);
      auto without = test.model->blocks[1]->forward(x, context);
      torch::AutoGradMode grad(true);
      auto with = test.model->blocks[1]->forward(x.detach().requires_grad_(true), context);
      CHECK(torch::equal(without, with));
    }
  }
}

TEST_CASE("gradients with dropout agree with finite differences") {
  for (auto recipe : {gpt_recipe(), llama_recipe()}) {
    recipe.dropout = 0.2;
    recipe.n_layers = 1;
    TestModel test(recipe, Weights::seeded, 96, 16, torch::kFloat64);
    auto batch = small_batch();
    test.loss(batch).backward();
    for (size_t i = 0; i < test.model->slots.size(); ++i) {
      auto& slot = test.model->slots[i];
      auto generator = at::detail::createCPUGenerator(i);
      auto direction = at::normal(0.0, 1.0, slot.sizes(), generator, slot.options().requires_grad(false));
      double slope = (slot.grad() * direction).sum().item<double>();
      torch::NoGradGuard no_grad;
      auto at = [&](double offset) {
        slot.add_(direction, offset);
        double loss = test.loss(batch).item<double>();
        slot.sub_(direction, offset);
        return loss;
      };
      double h = 1e-5, measured = (at(h) - at(-h)) / (2 * h);
      CAPTURE(recipe.name, test.model->spec.parameters()[i]->name);
      CHECK(std::abs(measured - slope) < 1e-6 * std::max(1.0, std::abs(slope)));
    }
  }
}
