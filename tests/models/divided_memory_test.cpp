// The measured memory of blocks on ranks that divide a model is what is predicted from their specs. RUNNER_BLOCK_MEMORY=1 prints the error
// of each block.
#include <catch2/catch_test_macros.hpp>

#include "block_memory.hpp"
#include "runner/config/model_families.hpp"
#include "tests/support/every_nth.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// Claimed and measured bytes of the blocks of the first rank.
ComparedMemory compared(const DividedRun& run) {
  ComparedMemory result;
  run_ranks(run.ranks, [&](World& world) {
    const TensorDivision division{.ranks = run.ranks, .rank = world.rank, .sequence_parallel = run.sequence_parallel};
    const auto spec = spec_of(run, division);
    const TensorAxis axis(world.group, division);
    const ForwardContext context{.batch = &run.batch, .dropout_key = 1, .tensor_axis = run.ranks > 1 ? &axis : nullptr};
    auto bytes = measured_memory(run, spec, context);
    if (world.rank > 0) return;
    result.spec = spec;
    result.measured = std::move(bytes);
  });
  result.claims = claimed_memory(run, result.spec);
  return result;
}

void check_memory(const DividedRun& run) {
  check_memory(
      fmt::format("{}, {} ranks, sequence parallel {}, dropout {}, bf16 {}, {}", run.recipe.name, run.ranks,
                  run.sequence_parallel, run.recipe.dropout, run.dtype == torch::kBFloat16, run.fine_tune.method),
      compared(run));
}

/// Calls body(run) for one rank, and for 2 and 4 ranks with and without sequence parallelism.
template <class Body>
void for_each_form(const Recipe::Model& recipe, torch::ScalarType dtype, const Body& body) {
  for (int ranks : {1, 2, 4})
    for (bool sequence_parallel : {true, false}) {
      if (ranks == 1 && sequence_parallel) continue;
      body({.recipe = sized_for_memory(recipe),
            .ranks = ranks,
            .sequence_parallel = sequence_parallel,
            .batch = small_batch(memory_rows, memory_tokens, 480),
            .vocabulary = 480,
            .seq_len = memory_tokens,
            .dtype = dtype});
    }
}

}  // namespace

TEST_CASE("blocks of ranks that divide a model need as much memory as is predicted", "[memory]") {
  EveryNth chosen(3);
  for (const auto& name : language_model_names()) {
    if (family_kind(name) == "encoder") continue;
    for (auto dtype : {torch::kFloat32, torch::kBFloat16})
      for (double dropout : {0.0, 0.1}) {
        if (!chosen()) continue;
        auto recipe = name == "gpt" ? gpt_recipe() : name == "llama" ? llama_recipe() : family_recipe(name);
        recipe.dropout = dropout;
        for_each_form(recipe, dtype, [](const DividedRun& run) { check_memory(run); });
      }
  }
}

TEST_CASE("blocks with adapters of divided matrices save as much as is predicted", "[memory]") {
  for (const auto& recipe : {gpt_recipe(), llama_recipe(), family_recipe("olmo2")})
    for_each_form(recipe, torch::kFloat32, [](DividedRun run) {
      run.fine_tune.method = "lora";
      run.fine_tune.rank = 4;
      const auto [spec, claims, measured] = compared(run);
      for (size_t b = 0; b < claims.size(); ++b) {
        INFO(run.recipe.name << " " << spec.blocks[b].name << " " << run.ranks << " " << run.sequence_parallel);
        CHECK(std::abs(error_of(claims[b].without_graph, measured[b].without_graph)) < 1);
        CHECK(std::abs(error_of(claims[b].saved, measured[b].saved)) < 1);
      }
    });
}
