// The measured memory of blocks on ranks that divide the tokens of rows is what is predicted from their specs. RUNNER_BLOCK_MEMORY=1 prints
// the error of each block.
#include <catch2/catch_test_macros.hpp>

#include "block_memory.hpp"
#include "context_model.hpp"
#include "tests/support/every_nth.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// So many that the scratch memory of threads is small in comparison.
constexpr int64_t rows = 16;

/// Claimed and measured bytes of the blocks of the first rank, which has the last tokens of the rows.
ComparedMemory compared(const ContextRun& run) {
  ComparedMemory result;
  run_ranks(run.world(), [&](World& world) {
    const RankAxes axes(run, world);
    auto batch = cut_tokens(run.divided.batch.fields, run.context(world.rank));
    batch.fields = batch.host_fields;
    const auto spec = run.spec(world.rank);
    const ForwardContext context{
        .batch = &batch, .dropout_key = 1, .tensor_axis = axes.tensor_axis(), .context_axis = &*axes.context};
    auto bytes = measured_memory(run.divided, spec, context);
    if (world.rank > 0) return;
    result.spec = spec;
    result.measured = std::move(bytes);
  });
  result.claims = claimed_memory(run.divided, result.spec);
  return result;
}

}  // namespace

TEST_CASE("blocks of context ranks need as much memory as is predicted", "[memory]") {
  EveryNth chosen(5);
  for (auto recipe : {gpt_recipe(), llama_recipe(), family_recipe("gemma2")})
    for (auto dtype : {torch::kFloat32, torch::kBFloat16})
      for (double dropout : {0.0, 0.1})
        for (const auto& [ranks, tensor_ranks] : {std::pair(2, 1), std::pair(4, 1), std::pair(2, 2)}) {
          if (!chosen()) continue;
          recipe.n_heads = 8;
          recipe.dropout = dropout;
          const DividedRun divided{.recipe = sized_for_memory(recipe),
                                   .ranks = tensor_ranks,
                                   .batch = small_batch(rows, memory_tokens, 480),
                                   .vocabulary = 480,
                                   .seq_len = memory_tokens,
                                   .dtype = dtype};
          for_each_form(divided, ranks, [](const ContextRun& run) { check_memory(describe(run), compared(run)); });
        }
}
