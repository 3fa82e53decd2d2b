// Specs of ranks that divide the tokens of rows, and what cannot be divided.
#include <catch2/catch_test_macros.hpp>

#include "recipes.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

Recipe with_model(const Recipe::Model& model) {
  Recipe recipe;
  recipe.model = model;
  return recipe;
}

ModelSpec spec_of_rank(const Recipe::Model& model, const ContextDivision& context) {
  return make_spec(model, 61, 11, RowKind::one_sequence, {}, context);
}

}  // namespace

TEST_CASE("the spec of a context rank counts its tokens, and a row complete ones") {
  const auto whole = make_spec(llama_recipe(), 61, 11);
  for (auto form : {ContextForm::gather, ContextForm::ring, ContextForm::ulysses}) {
    const ContextDivision context{.ranks = 4, .rank = 3, .form = form};
    const auto spec = spec_of_rank(llama_recipe(), context);
    CHECK(spec.context == context);
    CHECK(spec.seq_len == 4);  // of 16, with padding
    REQUIRE(spec.batch.size() == 2);
    CHECK(spec.batch[0].row == std::vector<int64_t>{11});
    CHECK(spec.batch_row_bytes() == 3 * 4 * 8);
    for (size_t b = 0; b < spec.blocks.size(); ++b) {
      CHECK(spec.blocks[b].forward_flops_per_token == whole.blocks[b].forward_flops_per_token);
      CHECK(spec.blocks[b].output_elements_per_token == whole.blocks[b].output_elements_per_token);
      CHECK(spec.blocks[b].parameter_count() == whole.blocks[b].parameter_count());
      const bool attends = spec.blocks[b].name.ends_with(".attention");
      CHECK(spec.blocks[b].over_context_axis.forward.empty() == !attends);
    }
  }
}

TEST_CASE("a spec of one context rank is that of complete rows") {
  const auto whole = make_spec(gpt_recipe(), 61, 11), one = spec_of_rank(gpt_recipe(), {});
  CHECK(one.seq_len == 11);
  CHECK(one.batch_row_bytes() == whole.batch_row_bytes());
  CHECK(one.blocks[1].over_context_axis.forward.empty());
}

TEST_CASE("ranks cannot divide the tokens of models that do not predict tokens") {
  CHECK(refuse_context(with_model(family_recipe("bert")), 2, ContextForm::gather) ==
        "the tokens of bert cannot be divided: context parallelism is for gpt and decoders that predict tokens");
  Recipe vision = with_model({});
  vision.model.name = "vit";
  CHECK(refuse_context(vision, 2, ContextForm::ring) ==
        "the tokens of vit cannot be divided: context parallelism is for gpt and decoders that predict tokens");
  auto labels = llama_recipe();
  labels.num_labels = 3;
  CHECK(
      refuse_context(with_model(labels), 2, ContextForm::gather) ==
      "the tokens of models with model.num_labels cannot be divided: context parallelism is for gpt and decoders that "
      "predict tokens");
  CHECK(refuse_context(vision, 1, ContextForm::gather) == std::nullopt);
}

TEST_CASE("ulysses needs a share of the heads for each rank, of the context axis and of the tensor axis") {
  auto model = llama_recipe();
  model.n_heads = 12;
  model.dim = 48;
  const auto recipe = with_model(model);
  CHECK(refuse_context(recipe, 4, ContextForm::ulysses) == std::nullopt);
  CHECK(refuse_context(recipe, 3, ContextForm::ulysses, 2) == std::nullopt);
  CHECK(refuse_context(recipe, 5, ContextForm::ulysses) ==
        "5 ranks cannot share 12 heads, as the form \"ulysses\" does; sizes that work: 1, 2, 3, 4, 6, 12");
  CHECK(
      refuse_context(recipe, 4, ContextForm::ulysses, 2) ==
      "4 ranks cannot share 12 heads that 2 tensor ranks have divided, as the form \"ulysses\" does; sizes that work: "
      "1, 2, 3, 6");
  for (auto form : {ContextForm::gather, ContextForm::ring}) CHECK(refuse_context(recipe, 5, form, 2) == std::nullopt);
}

TEST_CASE("every form does windows, soft caps and packed rows") {
  for (auto form : {ContextForm::gather, ContextForm::ring, ContextForm::ulysses})
    for (const auto* name : {"mistral", "gemma2", "gemma3", "gpt_neox", "olmo2"}) {
      auto recipe = with_model(family_recipe(name));
      recipe.data.packing = "best_fit";
      CHECK(refuse_context(recipe, 2, form) == std::nullopt);
    }
}
