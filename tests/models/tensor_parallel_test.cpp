// Ranks that divide the matrices of a model compute the losses and the gradients of one rank.
#include <catch2/catch_test_macros.hpp>

#include "divided_model.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// 3 rows of 11 tokens: 33 rows of the stream, which neither 2 nor 4 divides. Some targets are ignored.
MicroBatch uneven_batch(int64_t vocabulary = 61) {
  auto batch = small_batch(3, 11, vocabulary);
  batch.fields[token_field::targets].index_put_({torch::tensor({0, 1, 1, 2}), torch::tensor({0, 3, 10, 5})}, -100);
  batch.host_fields = batch.fields;
  return batch;
}

std::string name_of(const DividedRun& run) {
  return fmt::format("{} of {} key heads, tied {}, bias {}, dropout {}, {} ranks, sequence parallel {}, recomputes {}",
                     run.recipe.name, run.recipe.n_kv_heads.value_or(run.recipe.n_heads), run.recipe.tie_embeddings,
                     run.recipe.bias, run.recipe.dropout, run.ranks, run.sequence_parallel, run.recomputes);
}

void check_parity(const DividedRun& run, double tolerance = 1e-12) {
  INFO(name_of(run));
  const auto expected = outcome_on_one_rank(run);
  const auto actual = outcomes_on_ranks(run);
  for (const auto& outcome : actual) CHECK(torch::equal(outcome.result, actual[0].result));
  CHECK(relative_error(actual[0].result, expected.result) < tolerance);
  const auto spec = spec_of(run);
  for (size_t slot = 0; slot < expected.gradients.size(); ++slot) {
    INFO(spec.parameters()[slot]->name);
    REQUIRE(actual[0].gradients[slot].defined() == expected.gradients[slot].defined());
    if (!expected.gradients[slot].defined()) continue;
    CHECK(expected.gradients[slot].abs().max().item<double>() > 1e-9);
    int differ = 0;
    CHECK(relative_error(whole_gradient(run, actual, slot, differ), expected.gradients[slot]) < tolerance);
    CHECK(differ == 0);
  }
}

/// Calls body(run) for 2 and 4 ranks, with and without sequence parallelism.
template <class Body>
void for_each_division(DividedRun run, const Body& body) {
  for (int ranks : {2, 4})
    for (bool sequence_parallel : {false, true}) {
      run.ranks = ranks;
      run.sequence_parallel = sequence_parallel;
      body(run);
    }
}

/// The recipes of this folder with a feed-forward that 4 ranks divide unevenly.
std::vector<Recipe::Model> divisible_recipes() {
  std::vector<Recipe::Model> recipes;
  for (auto recipe : varied_recipes()) {
    if (family_kind(recipe.name) == "encoder") continue;
    recipe.hidden_dim = 90;
    recipes.push_back(recipe);
  }
  return recipes;
}

}  // namespace

TEST_CASE("all families on 2 and 4 ranks have the loss and the gradients of one rank", "[rank9]") {
  for (const auto& recipe : divisible_recipes())
    for_each_division({.recipe = recipe, .batch = uneven_batch()}, [](const auto& run) { check_parity(run); });
}

TEST_CASE("dropout on 2 and 4 ranks drops what one rank drops", "[rank9]") {
  for (auto recipe : divisible_recipes()) {
    recipe.dropout = 0.2;
    for_each_division({.recipe = recipe, .batch = uneven_batch()}, [](const auto& run) { check_parity(run); });
  }
}

TEST_CASE("blocks that are computed again without their last product have the same gradients", "[rank9]") {
  for (auto recipe : {gpt_recipe(), llama_recipe(), family_recipe("gpt_neox"), family_recipe("gemma3")})
    for (double dropout : {0.0, 0.2}) {
      recipe.dropout = dropout;
      for_each_division({.recipe = recipe, .batch = uneven_batch(), .recomputes = true},
                        [](const auto& run) { check_parity(run); });
    }
}

TEST_CASE("packed rows on 2 and 4 ranks have the loss and the gradients of one rank", "[rank9]") {
  auto batch = uneven_batch();
  batch.fields.push_back(tensor_of(
      {0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {3, 11}));
  batch.host_fields = batch.fields;
  for (auto recipe : {gpt_recipe(), llama_recipe(), family_recipe("gemma3")})
    for (double dropout : {0.0, 0.2}) {
      recipe.dropout = dropout;
      for_each_division({.recipe = recipe, .batch = batch, .rows = RowKind::packed},
                        [](const auto& run) { check_parity(run); });
    }
}

TEST_CASE("micro-batches of one token or none, which ranks have no rows of, and 3 ranks") {
  auto recipe = llama_recipe();
  recipe.n_heads = recipe.n_kv_heads.emplace(3);
  recipe.dim = 36;
  for (bool sequence_parallel : {false, true}) {
    DividedRun run{.recipe = recipe, .ranks = 3, .sequence_parallel = sequence_parallel, .batch = uneven_batch()};
    check_parity(run);
    run.recipe.dropout = 0.2;
    run.batch = small_batch(1, 2, 61);
    check_parity(run);
    run.batch = small_batch(0, 11, 61);
    for (const auto& outcome : outcomes_on_ranks(run)) {
      CHECK(outcome.result.item<double>() == 0);
      for (const auto& gradient : outcome.gradients) CHECK(gradient.abs().sum().item<double>() == 0);
    }
  }
}

TEST_CASE("a loss of a hook and the logits of one token are those of one rank") {
  const TokenLoss smoothed = [](const torch::Tensor& logits, const torch::Tensor& targets) {
    const auto log = logits.log_softmax(-1);
    return -0.9 * log.gather(1, targets.unsqueeze(1)).squeeze(1) - 0.1 * log.mean(-1);
  };
  for (auto recipe : {gpt_recipe(), family_recipe("gemma2")})
    for (int64_t chunk : {0, 7}) {
      recipe.loss_chunk_tokens = chunk;
      for_each_division({.recipe = recipe, .batch = uneven_batch(), .token_loss = &smoothed},
                        [](const auto& run) { check_parity(run); });
      for_each_division({.recipe = recipe, .batch = uneven_batch(), .logits_of = 4}, [](const auto& run) {
        INFO(name_of(run));
        const auto expected = outcome_on_one_rank(run).result;
        REQUIRE(expected.sizes() == at::IntArrayRef({3, 61}));
        for (const auto& outcome : outcomes_on_ranks(run)) CHECK(relative_error(outcome.result, expected) < 1e-6);
      });
    }
}

TEST_CASE("fp32, mixed precision and bfloat16 on 4 ranks are near one rank") {
  for (const auto& recipe : {gpt_recipe(), family_recipe("olmo2"), family_recipe("gemma2")})
    for (bool sequence_parallel : {false, true}) {
      DividedRun run{.recipe = recipe, .ranks = 4, .sequence_parallel = sequence_parallel, .batch = uneven_batch()};
      run.dtype = torch::kFloat32;
      check_parity(run, 1e-4);
      run.mixed = true;
      check_parity(run, 0.1);
      run.mixed = false;
      run.dtype = torch::kBFloat16;
      check_parity(run, 0.2);
    }
}

TEST_CASE("adapters of divided matrices have the gradients of one rank, with and without dropout", "[rank9]") {
  for (auto recipe : {gpt_recipe(), llama_recipe(), family_recipe("gpt_neox")})
    for (double dropout : {0.0, 0.3})
      for (bool recomputes : {false, true}) {
        recipe.hidden_dim = 90;
        DividedRun run{.recipe = recipe, .batch = uneven_batch(), .recomputes = recomputes};
        run.fine_tune.method = "lora";
        run.fine_tune.rank = 3;
        run.fine_tune.dropout = dropout;
        for_each_division(run, [](const auto& one) { check_parity(one); });
      }
}

TEST_CASE("the numbers of a spec are those of the rank with the most") {
  auto recipe = llama_recipe();  // 2 key heads
  recipe.hidden_dim = 90;
  const auto whole = make_spec(recipe, 61, 16);
  for (int ranks : {2, 4}) {
    const TensorDivision last{.ranks = ranks, .rank = ranks - 1};
    const auto spec = make_spec(recipe, 61, 16, RowKind::one_sequence, last);
    const auto& attention = spec.blocks[1];
    CHECK(attention.output_elements_per_token == 32.0 / ranks);
    CHECK(attention.forward_flops_per_token < whole.blocks[1].forward_flops_per_token);
  }
}
