// Which parameters have their gradients in the second part of a split backward, and how its FLOPs are divided.
#include "strategies/program/split_backward.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runner/config/model_families.hpp"
#include "runner/models/models.hpp"

using namespace runner;

namespace {

constexpr int64_t dim = 32, vocab = 61, seq_len = 16;

ModelSpec spec_of(const std::string& family, const std::vector<std::string>& frozen = {},
                  const Recipe::FineTune& fine_tune = {}) {
  Recipe recipe;
  recipe.model = family_defaults(family);
  recipe.model.n_layers = 1;
  recipe.model.dim = dim;
  recipe.model.n_heads = 4;
  recipe.model.max_seq_len = seq_len;
  recipe.model.frozen = frozen;
  recipe.fine_tune = fine_tune;
  return make_spec(recipe, vocab, seq_len);
}

}  // namespace

TEST_CASE("frozen matrices need nothing in the second part, and adapters need their own products") {
  const auto frozen = spec_of("gpt", {"blocks.0.mlp.up.*", "blocks.0.attention.*"});
  CHECK(!has_later_products(frozen.blocks[1]));
  Recipe::FineTune lora;
  lora.method = "lora";
  lora.rank = 2;
  lora.targets = {"qkv"};
  const auto adapted = spec_of("gpt", {}, lora);
  CHECK(weight_flops_per_token(adapted, 1) == 2 * (2 * dim + 2 * 3 * dim));
}

TEST_CASE("the second part has the FLOPs of the products for the gradients of matrices") {
  const auto gpt = spec_of("gpt");
  CHECK(weight_flops_per_token(gpt, 1) == 2 * 4 * dim * dim);
  CHECK(weight_flops_per_token(gpt, 2) == 2 * 8 * dim * dim);
  CHECK(gpt.backward_flops_per_token(2) == 2 * weight_flops_per_token(gpt, 2));
  CHECK(weight_flops_per_token(gpt, 0) == 0);
  CHECK(weight_flops_per_token(gpt, 3) == 0);
}
