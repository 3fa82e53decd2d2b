// Ranks that divide the tokens of rows compute the losses and the gradients of one rank.
#include <catch2/catch_test_macros.hpp>

#include "context_model.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// 3 rows of 11 tokens, which no number of ranks divides into equal chunks. Some targets are ignored.
MicroBatch uneven_batch() {
  auto batch = small_batch(3, 11, 61);
  batch.fields[token_field::targets].index_put_({torch::tensor({0, 1, 1, 2}), torch::tensor({0, 3, 10, 5})}, -100);
  batch.host_fields = batch.fields;
  return batch;
}

/// Sequences of 1 to 11 tokens.
MicroBatch packed_batch() {
  auto batch = uneven_batch();
  batch.fields.push_back(tensor_of(
      {0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {3, 11}));
  batch.host_fields = batch.fields;
  return batch;
}

/// `run` of one rank of the tensor axis.
DividedRun one_rank(Recipe::Model recipe, double dropout = 0, MicroBatch batch = uneven_batch()) {
  recipe.dropout = dropout;
  const auto rows = batch.fields.size() > token_field::positions ? RowKind::packed : RowKind::one_sequence;
  return {.recipe = std::move(recipe), .ranks = 1, .batch = std::move(batch), .rows = rows};
}

/// The gradient of a complete parameter, summed over the ranks of the context axis.
torch::Tensor summed_gradient(const ContextRun& run, const std::vector<Outcome>& outcomes, size_t slot) {
  torch::Tensor sum;
  const auto t = run.tensor_ranks();
  for (int first = 0; first < run.world(); first += t) {
    const std::vector<Outcome> of_tensor(outcomes.begin() + first, outcomes.begin() + first + t);
    int differ = 0;
    const auto gradient = t > 1 ? whole_gradient(run.divided, of_tensor, slot, differ) : of_tensor[0].gradients[slot];
    CHECK(differ == 0);
    sum = sum.defined() ? sum + gradient : gradient;
  }
  return sum;
}

void check_parity(const ContextRun& run, double tolerance = 1e-12) {
  INFO(describe(run));
  const auto expected = outcome_on_one_rank(run.divided);
  const auto actual = outcomes_on_ranks(run);
  auto loss = torch::zeros({}, expected.result.options());
  for (int r = 0; r < run.ranks; ++r) loss += actual[static_cast<size_t>(r * run.tensor_ranks())].result;
  CHECK(relative_error(loss, expected.result) < tolerance);
  const auto spec = spec_of(run.divided);
  for (size_t slot = 0; slot < expected.gradients.size(); ++slot) {
    INFO(spec.parameters()[slot]->name);
    REQUIRE(actual[0].gradients[slot].defined() == expected.gradients[slot].defined());
    if (!expected.gradients[slot].defined()) continue;
    CHECK(expected.gradients[slot].abs().max().item<double>() > 1e-9);
    CHECK(relative_error(summed_gradient(run, actual, slot), expected.gradients[slot]) < tolerance);
  }
}

/// The recipes of this folder that predict tokens.
std::vector<Recipe::Model> recipes() {
  std::vector<Recipe::Model> all;
  for (const auto& recipe : varied_recipes())
    if (family_kind(recipe.name) != "encoder") all.push_back(recipe);
  return all;
}

/// Recipes with and without grouped key heads, a window, a soft cap, norms of queries and parallel branches.
std::vector<Recipe::Model> different_recipes() {
  return {gpt_recipe(), llama_recipe(), family_recipe("gemma2"), family_recipe("gemma3"), family_recipe("gpt_neox")};
}

const auto parity = [](const ContextRun& run) { check_parity(run); };

}  // namespace

TEST_CASE("all families on 2 and 4 context ranks have the loss and the gradients of one rank", "[rank9]") {
  for (const auto& recipe : recipes())
    for (int ranks : {2, 4}) for_each_form(one_rank(recipe), ranks, parity);
}

TEST_CASE("dropout on 2 and 4 context ranks drops what one rank drops", "[rank9]") {
  for (const auto& recipe : different_recipes())
    for (int ranks : {2, 4}) for_each_form(one_rank(recipe, 0.2), ranks, parity);
}

TEST_CASE("packed rows on 2 and 4 context ranks have the loss and the gradients of one rank", "[rank9]") {
  for (const auto& recipe : different_recipes())
    for (double dropout : {0.0, 0.2})
      for (int ranks : {2, 4}) for_each_form(one_rank(recipe, dropout, packed_batch()), ranks, parity);
}

TEST_CASE("3 context ranks, of which key heads are repeated for ulysses") {
  auto recipe = llama_recipe();
  recipe.dim = 48;
  recipe.n_heads = 6;
  for (int64_t key_heads : {1, 2, 3, 6})
    for (double dropout : {0.0, 0.2}) {
      recipe.n_kv_heads = key_heads;
      for_each_form(one_rank(recipe, dropout), 3, parity);
    }
}

TEST_CASE("blocks of context ranks that are computed again have the same gradients") {
  for (const auto& recipe : different_recipes())
    for (double dropout : {0.0, 0.2}) {
      auto run = one_rank(recipe, dropout);
      run.recomputes = true;
      for_each_form(run, 2, parity);
    }
}

TEST_CASE("ranks that divide both tokens and matrices have the loss and the gradients of one rank", "[rank9]") {
  for (const auto& recipe : different_recipes())
    for (bool packed : {false, true})
      for (double dropout : {0.0, 0.2})
        for (bool sequence_parallel : {false, true}) {
          auto run = one_rank(recipe, dropout, packed ? packed_batch() : uneven_batch());
          run.recipe.hidden_dim = 90;
          run.ranks = 2;
          run.sequence_parallel = sequence_parallel;
          run.recomputes = packed;
          for_each_form(run, 2, parity);
        }
}

TEST_CASE("rows of one token, rows that are all padding, and no rows on context ranks") {
  for (auto batch : {small_batch(2, 1, 61), small_batch(1, 3, 61)})
    for (double dropout : {0.0, 0.2})
      for (const auto& recipe : {gpt_recipe(), llama_recipe()})
        for_each_form(one_rank(recipe, dropout, batch), 4, [](const ContextRun& run) {
          const auto expected = outcome_on_one_rank(run.divided).result;
          auto loss = torch::zeros({}, expected.options());
          for (const auto& outcome : outcomes_on_ranks(run)) loss += outcome.result;
          CHECK(relative_error(loss, expected) < 1e-12);
        });
  for_each_form(one_rank(llama_recipe(), 0, small_batch(0, 11, 61)), 2, [](const ContextRun& run) {
    for (const auto& outcome : outcomes_on_ranks(run)) {
      CHECK(outcome.result.item<double>() == 0);
      for (const auto& gradient : outcome.gradients) CHECK(gradient.abs().sum().item<double>() == 0);
    }
  });
}

TEST_CASE("fp32, mixed precision and bfloat16 on context ranks are near one rank") {
  for (const auto& recipe : {gpt_recipe(), llama_recipe(), family_recipe("gemma2"), family_recipe("mistral")})
    for (double dropout : {0.0, 0.2}) {
      auto run = one_rank(recipe, dropout);
      run.dtype = torch::kFloat32;
      for_each_form(run, 4, [](const ContextRun& one) { check_parity(one, 1e-4); });
      run.mixed = true;
      for_each_form(run, 4, [](const ContextRun& one) { check_parity(one, 0.1); });
      run.mixed = false;
      run.dtype = torch::kBFloat16;
      for_each_form(run, 4, [](const ContextRun& one) { check_parity(one, 0.2); });
    }
}

TEST_CASE("adapters on context ranks have the gradients of one rank, with and without dropout") {
  for (const auto& recipe : {gpt_recipe(), llama_recipe()})
    for (double dropout : {0.0, 0.3}) {
      auto run = one_rank(recipe);
      run.fine_tune.method = "lora";
      run.fine_tune.rank = 3;
      run.fine_tune.dropout = dropout;
      for_each_form(run, 2, parity);
      run.ranks = 2;
      for_each_form(run, 2, parity);
    }
}

TEST_CASE("a run on context ranks has the same bits each time") {
  for (const auto& recipe : {llama_recipe(), family_recipe("gemma2")}) {
    auto divided = one_rank(recipe, 0.1);
    divided.dtype = torch::kFloat32;
    for_each_form(divided, 4, [](const ContextRun& run) {
      const auto first = outcomes_on_ranks(run), second = outcomes_on_ranks(run);
      for (size_t rank = 0; rank < first.size(); ++rank) {
        CHECK(torch::equal(first[rank].result, second[rank].result));
        for (size_t slot = 0; slot < first[rank].gradients.size(); ++slot)
          CHECK(torch::equal(first[rank].gradients[slot], second[rank].gradients[slot]));
      }
    });
  }
}

TEST_CASE("a loss of a hook on context ranks is that of one rank") {
  const TokenLoss smoothed = [](const torch::Tensor& logits, const torch::Tensor& targets) {
    const auto log = logits.log_softmax(-1);
    return -0.9 * log.gather(1, targets.unsqueeze(1)).squeeze(1) - 0.1 * log.mean(-1);
  };
  auto run = one_rank(llama_recipe());
  run.token_loss = &smoothed;
  for_each_form(run, 4, parity);
}
