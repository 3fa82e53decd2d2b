// The module matches its spec: order of blocks, used slots, one slot for tied weights, FLOPs as PyTorch counts the
// products.
#include "test_model.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace runner;
using namespace runner::testing;

TEST_CASE("forward and backward use every slot with the shape in the spec") {
  for (const auto& recipe : varied_recipes()) {
    TestModel test(recipe);
    REQUIRE(test.model->blocks.size() == test.model->spec.blocks.size());
    auto batch = small_batch();
    test.loss(batch).backward();
    auto parameters = test.model->spec.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      CAPTURE(recipe.name, recipe.tie_embeddings, recipe.bias, parameters[i]->name);
      const auto& gradient = test.model->slots[i].grad();
      REQUIRE(gradient.defined());
      CHECK(gradient.sizes() == at::IntArrayRef(parameters[i]->shape));
      // A bias on the keys shifts all scores of a row equally, so the gradient of that part may be (nearly) zero.
      if (is_key_bias_without_rotation(recipe, parameters[i]->name)) continue;
      CHECK(gradient.abs().max().item<float>() > 1e-6f);
    }
  }
}

TEST_CASE("blocks exchange [B, T, dim] in the order of the spec, and do not change their input") {
  for (const auto& recipe : {gpt_recipe(), llama_recipe()}) {
    TestModel test(recipe);
    auto batch = small_batch();
    ForwardContext context{&batch, true, 1};
    torch::Tensor x;
    for (size_t i = 0; i + 1 < test.model->blocks.size(); ++i) {
      auto before = x.defined() ? x.clone() : x;
      const auto version = x.defined() ? x._version() : 0;
      auto y = test.model->blocks[i]->forward(x, context);
      CHECK(y.sizes() == at::IntArrayRef({3, 16, 32}));
      if (x.defined()) CHECK(torch::equal(x, before));
      if (x.defined()) CHECK(x._version() == version);
      x = y;
    }
    const auto version = x._version();
    auto loss = test.model->blocks.back()->forward(x, context);
    CHECK(loss.dim() == 0);
    CHECK(loss.scalar_type() == torch::kFloat32);
    CHECK(x._version() == version);
  }
}

TEST_CASE("a tied weight gets the sum of the gradients of embedding and head") {
  for (auto recipe : {gpt_recipe(), llama_recipe()}) {
    recipe.tie_embeddings = true;
    TestModel tied(recipe);
    recipe.tie_embeddings = false;
    TestModel untied(recipe);
    auto batch = small_batch();
    {
      torch::NoGradGuard no_grad;
      untied["head.weight"].copy_(tied["embedding.tokens.weight"]);
    }
    auto tied_loss = tied.loss(batch), untied_loss = untied.loss(batch);
    CHECK(tied_loss.item<float>() == untied_loss.item<float>());
    tied_loss.backward();
    untied_loss.backward();
    auto sum = untied["embedding.tokens.weight"].grad() + untied["head.weight"].grad();
    CHECK(relative_error(tied["embedding.tokens.weight"].grad(), sum) < 1e-6);
  }
}

TEST_CASE("a sequence shorter than max_seq_len and an empty micro-batch work") {
  for (const auto& recipe : {gpt_recipe(), llama_recipe()}) {
    TestModel test(recipe);
    auto batch = small_batch(2, 5);
    test.loss(batch).backward();
    CHECK(test["head.norm.weight"].grad().abs().sum().item<float>() > 0);

    test.clear_gradients();
    auto empty = small_batch(0);
    auto loss = test.loss(empty);
    CHECK(loss.item<float>() == 0);
    loss.backward();
    for (const auto& slot : test.model->slots) {
      REQUIRE(slot.grad().defined());
      CHECK(slot.grad().abs().sum().item<float>() == 0);
    }
  }
}

TEST_CASE("no token attends to a later one") {
  for (auto recipe : {gpt_recipe(), llama_recipe()}) {
    recipe.dropout = GENERATE(0.0, 0.1);
    TestModel test(recipe);
    auto batch = small_batch();
    auto changed = batch;
    changed.fields[token_field::inputs] = batch.fields[token_field::inputs].clone();
    changed.fields[token_field::inputs].select(1, 10).add_(1).remainder_(96);
    ForwardContext context{&batch, true, 5}, changed_context{&changed, true, 5};
    torch::NoGradGuard no_grad;
    auto run = [&](const ForwardContext& c) {
      torch::Tensor x;
      for (size_t i = 0; i + 1 < test.model->blocks.size(); ++i) x = test.model->blocks[i]->forward(x, c);
      return x;
    };
    auto a = run(context), b = run(changed_context);
    CHECK(relative_error(b.narrow(1, 0, 10), a.narrow(1, 0, 10)) < 1e-6);
    CHECK(relative_error(b.narrow(1, 10, 6), a.narrow(1, 10, 6)) > 1e-3);
  }
}

TEST_CASE("evaluation computes the same loss without saving activations") {
  for (const auto& recipe : {gpt_recipe(), llama_recipe()}) {
    TestModel test(recipe);
    auto batch = small_batch();
    auto trained = test.loss(batch);
    torch::NoGradGuard no_grad;
    auto evaluated = test.loss(batch, false);
    CHECK_FALSE(evaluated.requires_grad());
    CHECK(relative_error(evaluated, trained) < 1e-6);
  }
}
