// Every precision of a recipe: parameters in any dtype, and autocast with fp32 parameters.
#include "test_model.hpp"

#include <ATen/autocast_mode.h>

#include <catch2/catch_test_macros.hpp>

using namespace runner;
using namespace runner::testing;

namespace {

class Autocast {
 public:
  explicit Autocast(torch::ScalarType dtype) {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(torch::kCPU, true);
    at::autocast::set_autocast_dtype(torch::kCPU, dtype);
  }
  ~Autocast() {
    at::autocast::set_autocast_enabled(torch::kCPU, false);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
};

}  // namespace

TEST_CASE("under autocast blocks exchange the low precision, and parameters get fp32 gradients") {
  for (const auto& recipe : varied_recipes())
    for (auto dtype : {torch::kBFloat16, torch::kFloat16}) {
      TestModel test(recipe);
      auto batch = small_batch();
      auto full = test.loss(batch);
      full.backward();
      std::vector<torch::Tensor> expected;
      for (auto& slot : test.model->slots) expected.push_back(slot.grad());
      test.clear_gradients();

      torch::Tensor loss;
      {
        Autocast autocast(dtype);
        ForwardContext context{&batch, true, 1};
        auto x = test.model->blocks[0]->forward({}, context);
        CHECK(x.scalar_type() == dtype);
        for (size_t i = 1; i + 1 < test.model->blocks.size(); ++i) {
          x = test.model->blocks[i]->forward(x, context);
          CHECK(x.scalar_type() == dtype);
        }
        CHECK(at::autocast::is_autocast_enabled(torch::kCPU));
        loss = test.model->blocks.back()->forward(x, context);
      }
      CHECK(loss.scalar_type() == torch::kFloat32);
      CHECK(relative_error(loss, full) < 0.01);
      loss.backward();
      for (size_t i = 0; i < expected.size(); ++i) {
        CAPTURE(recipe.name, test.model->spec.parameters()[i]->name);
        const auto& gradient = test.model->slots[i].grad();
        CHECK(gradient.scalar_type() == torch::kFloat32);
        if (is_key_bias_without_rotation(recipe, test.model->spec.parameters()[i]->name)) continue;
        CHECK((gradient - expected[i]).norm().item<float>() < 0.05f * expected[i].norm().item<float>());
      }
    }
}

TEST_CASE("an embedding multiplier is rounded alike for a table in fp32 and one in the dtype of the products") {
  auto recipe = family_recipe("gemma");
  recipe.dim = 48;  // its root 6.928 is 6.9375 in bfloat16
  const auto batch = small_batch();
  const ForwardContext context{&batch, true, 1};
  TestModel narrow(recipe, Weights::seeded, 96, 16, torch::kBFloat16), wide(recipe);
  const auto expected = narrow.model->blocks[0]->forward({}, context);
  Autocast autocast(torch::kBFloat16);
  CHECK(at::equal(wide.model->blocks[0]->forward({}, context), expected));
}

TEST_CASE("parameters in bf16, fp16 and fp64 are trained in their dtype") {
  for (const auto& recipe : {gpt_recipe(), llama_recipe()}) {
    TestModel reference(recipe);
    auto batch = small_batch();
    auto expected = reference.loss(batch);
    for (auto dtype : {torch::kBFloat16, torch::kFloat16, torch::kFloat64}) {
      TestModel test(recipe, Weights::seeded, 96, 16, dtype);
      auto loss = test.loss(batch);
      CHECK(loss.scalar_type() == (dtype == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32));
      CHECK(relative_error(loss, expected) < (dtype == torch::kFloat64 ? 1e-6 : 0.01));
      loss.backward();
      for (const auto& slot : test.model->slots) CHECK(slot.grad().scalar_type() == dtype);
    }
  }
}
