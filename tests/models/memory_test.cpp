// The measured tensor bytes that a block saves for backward equal its spec's claim.
#include "test_model.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "runner/config/model_families.hpp"
#include "strategies/collective/counting_allocator.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::WithinRel;

namespace {

double saved_bytes(const BlockSpec& block, int64_t tokens, double compute_bytes) {
  const auto& saved = block.saved;
  const double wide = saved.float32_per_token + (compute_bytes == 4 ? saved.host_float32_per_token : 0);
  return static_cast<double>(tokens) * (saved.compute_elements_per_token * compute_bytes + wide * 4);
}

struct Case {
  Recipe::Model recipe;
  torch::ScalarType dtype;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& name : language_model_names()) {
    if (name == "gpt" || name == "llama") continue;
    for (double dropout : {0.0, 0.1})
      for (auto dtype : {torch::kFloat32, torch::kBFloat16}) {
        auto recipe = family_recipe(name);
        recipe.dim = 64;
        recipe.max_seq_len = 64;
        recipe.hidden_dim = 176;
        recipe.dropout = dropout;
        recipe.loss_chunk_tokens = 64;
        all.push_back({recipe, dtype});
      }
  }
  for (double dropout : {0.0, 0.1})
    for (auto dtype : {torch::kFloat32, torch::kBFloat16}) {
      for (auto recipe : {gpt_recipe(), llama_recipe()}) {
        recipe.dim = 64;
        recipe.max_seq_len = 64;
        recipe.hidden_dim = recipe.name == "gpt" ? 256 : 176;
        recipe.dropout = dropout;
        recipe.loss_chunk_tokens = 64;
        all.push_back({recipe, dtype});
      }
    }
  return all;
}

}  // namespace

TEST_CASE("each block saves as much as its spec claims between forward and backward, within 3 percent", "[memory]") {
  constexpr int64_t sequences = 4, seq_len = 64, tokens = sequences * seq_len;
  for (const auto& [recipe, dtype] : cases()) {
    TestModel test(recipe, Weights::seeded, 96, seq_len, dtype);
    auto batch = small_batch(sequences, seq_len);
    test.loss(batch);  // allocates the rotary table
    MemoryAccount account;
    AccountScope scope(account);
    ForwardContext context{&batch, true, 1};
    auto element = static_cast<double>(torch::elementSize(dtype));
    for (size_t i = 1; i < test.model->blocks.size(); ++i) {
      const auto& spec = test.model->spec.blocks[i];
      CAPTURE(recipe.name, recipe.dropout, element, spec.name);
      int64_t before = account.current();
      auto input = torch::rand({sequences, seq_len, recipe.dim}).to(dtype).requires_grad_(true);
      auto output = test.model->blocks[i]->forward(input, context);
      auto kept = static_cast<double>(account.current() - before);
      // The output is counted as the next block's input. The head's weight gradient has no token dimension.
      kept -= static_cast<double>(output.numel()) * static_cast<double>(output.element_size());
      if (spec.kind == BlockKind::head) kept -= 96.0 * static_cast<double>(recipe.dim) * element;
      CHECK_THAT(kept, WithinRel(saved_bytes(spec, tokens, element), 0.03));
    }
  }
}

TEST_CASE("the complete model saves the sum of its blocks", "[memory]") {
  constexpr int64_t sequences = 4, seq_len = 64, tokens = sequences * seq_len;
  for (const auto& [recipe, dtype] : cases()) {
    TestModel test(recipe, Weights::seeded, 96, seq_len, dtype);
    auto batch = small_batch(sequences, seq_len);
    test.loss(batch);
    MemoryAccount account;
    AccountScope scope(account);
    auto element = static_cast<double>(torch::elementSize(dtype));
    auto loss = test.loss(batch);
    double expected = 96.0 * static_cast<double>(recipe.dim) * element;
    for (const auto& block : test.model->spec.blocks) expected += saved_bytes(block, tokens, element);
    CAPTURE(recipe.name, recipe.dropout, element);
    CHECK_THAT(static_cast<double>(account.current()), WithinRel(expected, 0.03));
    loss.backward();
    loss = torch::Tensor();
    test.clear_gradients();
    CHECK(account.current() == 0);
  }
}

TEST_CASE("the head's peak memory is that of one chunk's logits", "[memory]") {
  auto recipe = gpt_recipe();
  recipe.tie_embeddings = false;
  recipe.max_seq_len = 256;
  constexpr int64_t sequences = 4, seq_len = 256, vocab = 2000;
  auto peak = [&](int64_t chunk, bool training) {
    recipe.loss_chunk_tokens = chunk;
    TestModel test(recipe, Weights::seeded, vocab, seq_len);
    auto batch = small_batch(sequences, seq_len, vocab);
    ForwardContext context{&batch, training, 1};
    auto input = torch::rand({sequences, seq_len, recipe.dim}).requires_grad_(training);
    MemoryAccount account;
    AccountScope scope(account);
    torch::AutoGradMode grad(training);
    test.model->blocks.back()->forward(input, context);
    return account.peak();
  };
  // Logits and their log-softmax exist at the same time, in fp32.
  int64_t logits = 2 * 64 * vocab * 4;
  CHECK(peak(64, false) < logits + 400'000);
  CHECK(peak(64, true) < logits + 400'000 + 2 * vocab * recipe.dim * 4);
  CHECK(peak(0, false) > 16 * logits);
}
