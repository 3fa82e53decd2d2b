// Packed rows: losses and gradients are those of the sequences in rows of their own.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "runner/models/host_attention.hpp"
#include "runner/models/sequences.hpp"
#include "test_model.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::WithinRel;

namespace {

constexpr int64_t row_length = 16, vocabulary = 96;
/// The lengths of sequences in each row.
const std::vector<std::vector<int64_t>> packed_rows = {{5, 1, 10}, {16}, {2, 3, 4, 7}};

std::vector<int64_t> counted_up(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<int64_t> positions;
  for (const auto& row : rows)
    for (int64_t length : row)
      for (int64_t t = 0; t < length; ++t) positions.push_back(t);
  return positions;
}

MicroBatch packed_batch() {
  auto batch = small_batch(std::ssize(packed_rows), row_length, vocabulary);
  batch.fields.push_back(tensor_of(counted_up(packed_rows), {batch.rows, row_length}));
  batch.host_fields = batch.fields;
  return batch;
}

/// Each sequence of the packed batch as a batch of one row.
std::vector<MicroBatch> separate_batches() {
  const auto all = small_batch(std::ssize(packed_rows), row_length, vocabulary);
  std::vector<MicroBatch> batches;
  for (size_t row = 0; row < packed_rows.size(); ++row) {
    int64_t first = 0;
    for (int64_t length : packed_rows[row]) {
      MicroBatch one{.rows = 1};
      for (const auto& field : all.fields)
        one.fields.push_back(field.narrow(0, static_cast<int64_t>(row), 1).narrow(1, first, length).contiguous());
      batches.push_back(std::move(one));
      first += length;
    }
  }
  return batches;
}

struct Outcome {
  double loss = 0;
  std::vector<torch::Tensor> gradients;
};

Outcome outcome_of(TestModel& test, const std::vector<MicroBatch>& batches) {
  Outcome outcome;
  test.clear_gradients();
  for (const auto& batch : batches) {
    auto loss = test.loss(batch);
    loss.backward();
    outcome.loss += loss.item<double>();
  }
  for (const auto& slot : test.model->slots) outcome.gradients.push_back(slot.grad().clone());
  return outcome;
}

void check_packed(const Recipe::Model& recipe, torch::ScalarType dtype, double tolerance) {
  TestModel packed(recipe, Weights::seeded, vocabulary, row_length, dtype, RowKind::packed);
  TestModel separate(recipe, Weights::seeded, vocabulary, row_length, dtype);
  const auto together = outcome_of(packed, {packed_batch()}), each = outcome_of(separate, separate_batches());
  CHECK_THAT(together.loss, WithinRel(each.loss, tolerance));
  for (size_t i = 0; i < each.gradients.size(); ++i) {
    CAPTURE(recipe.name, packed.model->spec.parameters()[i]->name);
    // The same number added to all scores changes nothing, so without rotary positions this gradient is rounding.
    const bool encoder = family_kind(recipe.name) == "encoder";
    if (encoder && packed.model->spec.parameters()[i]->name.ends_with("wk.bias")) continue;
    CHECK(relative_error(together.gradients[i], each.gradients[i]) < 10 * tolerance);
  }
}

}  // namespace

TEST_CASE("packed rows have the loss and the gradients of separate sequences, in every family", "[rank9]") {
  for (const auto& recipe : varied_recipes()) {
    check_packed(recipe, torch::kFloat64, 1e-12);  // attention of ATen, or in tiles
    check_packed(recipe, torch::kFloat32, 1e-6);   // host_attention, unless there is a soft cap
  }
}

TEST_CASE("packed rows in bfloat16 are near those of separate sequences") {
  for (const auto& recipe : {gpt_recipe(), llama_recipe(), family_recipe("mistral"), family_recipe("bert")})
    check_packed(recipe, torch::kBFloat16, 1e-2);
}

TEST_CASE("a token of a packed row is not affected by other sequences, also with dropout") {
  for (auto recipe : {gpt_recipe(), llama_recipe(), family_recipe("gemma2"), family_recipe("bert")})
    for (double dropout : {0.0, 0.3}) {
      recipe.dropout = dropout;
      TestModel test(recipe, Weights::seeded, vocabulary, row_length, torch::kFloat32, RowKind::packed);
      auto batch = packed_batch();
      // Only the last sequence of the last row is in the loss.
      batch.fields[token_field::targets] = batch.fields[token_field::targets].clone().fill_(ignored_target);
      batch.fields[token_field::targets][2].narrow(0, 9, 7).fill_(5);
      const double before = test.loss(batch).item<double>();
      auto changed = batch;
      changed.fields[token_field::inputs] = batch.fields[token_field::inputs].clone();
      changed.fields[token_field::inputs][2].narrow(0, 0, 9).add_(1).remainder_(vocabulary);
      CHECK(test.loss(changed).item<double>() == before);
      changed.fields[token_field::inputs][2][9].add_(1).remainder_(vocabulary);
      CHECK(test.loss(changed).item<double>() != before);
    }
}

TEST_CASE("fused attention of long packed rows crosses blocks of keys as in separate rows") {
  torch::manual_seed(5);
  const std::vector<std::vector<int64_t>> rows = {{700, 1, 299}, {37, 500, 463}};
  const int64_t length = 1000;
  for (int64_t window : {0, 64}) {
    const AttentionForm form{.window = window};
    auto q = torch::randn({2, length, 4, 24}).requires_grad_(), k = torch::randn({2, length, 2, 24}).requires_grad_(),
         v = torch::randn({2, length, 2, 24}).requires_grad_();
    const auto weight = torch::randn({2, length, 4 * 24});
    auto together = host_attention(q, k, v, form, tensor_of(counted_up(rows), {2, length})).view({2, length, -1});
    const auto gradients = torch::autograd::grad({(together * weight).sum()}, {q, k, v});
    std::vector<torch::Tensor> results;
    for (const auto& [row, first, count] : sequences_of(2, length, tensor_of(counted_up(rows), {2, length}))) {
      auto part = [row = row, first = first, count = count](const torch::Tensor& x) {
        return x.narrow(0, row, 1).narrow(1, first, count);
      };
      results.push_back(host_attention(part(q), part(k), part(v), form));
    }
    const auto apart = at::cat(results).view({2, length, -1});
    const auto expected = torch::autograd::grad({(apart * weight).sum()}, {q, k, v});
    CHECK(torch::equal(together, apart));
    for (size_t i = 0; i < 3; ++i) CHECK(torch::equal(gradients[i], expected[i]));
  }
}
