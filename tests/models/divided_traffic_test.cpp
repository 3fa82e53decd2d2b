// The collectives that blocks call over the tensor axis are those that their specs list.
#include <catch2/catch_test_macros.hpp>

#include "divided_model.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

using Calls = std::vector<std::string>;

std::string text_of(Collective kind, int64_t bytes) { return fmt::format("{} {}", name_of(kind), bytes); }

struct BlockCalls {
  Calls forward, again, backward;
};

/// The calls of the first rank: in the forward of each block, in a forward of which nothing reads the output, and in its backward.
std::vector<BlockCalls> called(const DividedRun& run) {
  std::vector<BlockCalls> calls(spec_of(run).blocks.size());
  run_ranks(run.ranks, [&](World& world) {
    const TensorDivision division{.ranks = run.ranks, .rank = world.rank, .sequence_parallel = run.sequence_parallel};
    const TensorAxis axis(world.group, division);
    const auto model = build_model(run.recipe, spec_of(run, division));
    for (size_t slot = 0; slot < model->slots.size(); ++slot)
      model->slots[slot] = torch::rand(model->spec.parameters()[slot]->shape).requires_grad_(true);
    Calls noted;
    world.trace->observe([&](const CollectiveCall& call) {
      noted.push_back(text_of(call.operation.kind, static_cast<int64_t>(call.operation.bytes)));
    });
    torch::Tensor x;
    for (size_t b = 0; b < calls.size(); ++b) {
      ForwardContext context{.batch = &run.batch, .dropout_key = 1, .tensor_axis = &axis};
      BlockCalls of_block;
      torch::Tensor output;
      {
        const MixedPrecision mixed;
        output = model->blocks[b]->forward(x, context);
        of_block.forward = std::exchange(noted, {});
        context.output_unused = true;
        if (model->spec.blocks[b].kind != BlockKind::head) model->blocks[b]->forward(x, context);
        of_block.again = std::exchange(noted, {});
      }
      output.backward(torch::ones_like(output));
      of_block.backward = std::exchange(noted, {});
      x = output.detach().requires_grad_(true);
      if (world.rank == 0) calls[b] = of_block;
    }
    world.trace->observe(nullptr);
  });
  return calls;
}

/// Those that the spec lists.
Calls listed(const DividedRun& run, const std::vector<BlockCollective>& list, bool output_unused) {
  const int64_t tokens = run.batch.fields[token_field::inputs].numel(),
                chunk = run.recipe.loss_chunk_tokens > 0 ? run.recipe.loss_chunk_tokens : tokens;
  Calls calls;
  for (const auto& one : list) {
    if (output_unused && one.of_output) continue;
    const int64_t element = one.values == BlockCollective::Values::compute ? 2 : 4;
    const auto bytes = [&](int64_t count) {
      return static_cast<int64_t>(one.elements_per_token * static_cast<double>(count)) * element;
    };
    const bool padded = run.sequence_parallel && one.values != BlockCollective::Values::statistics;
    const int64_t rows = padded ? (tokens + run.ranks - 1) / run.ranks * run.ranks : tokens;
    for (int64_t first = 0; one.per_chunk && first < tokens; first += chunk)
      calls.push_back(text_of(one.kind, bytes(std::min(chunk, tokens - first))));
    if (!one.per_chunk) calls.push_back(text_of(one.kind, bytes(rows)));
  }
  return calls;
}

}  // namespace

TEST_CASE("blocks call the collectives that their specs list, in forward, in recomputation and in backward") {
  for (auto recipe :
       {gpt_recipe(), llama_recipe(), family_recipe("gemma3"), family_recipe("olmo2"), family_recipe("gpt_neox")})
    for (double dropout : {0.0, 0.1})
      for (int ranks : {2, 4})
        for (bool sequence_parallel : {false, true}) {
          recipe.dropout = dropout;
          recipe.loss_chunk_tokens = 20;
          const DividedRun run{.recipe = recipe,
                               .ranks = ranks,
                               .sequence_parallel = sequence_parallel,
                               .batch = small_batch(3, 11, 61),
                               .dtype = torch::kFloat32};
          const auto spec = spec_of(run, {.ranks = ranks, .sequence_parallel = sequence_parallel});
          const auto calls = called(run);
          for (size_t b = 0; b < calls.size(); ++b) {
            INFO(recipe.name << " " << spec.blocks[b].name << ", " << ranks << " ranks, " << sequence_parallel
                             << ", dropout " << dropout);
            const auto& block = spec.blocks[b];
            CHECK(calls[b].forward == listed(run, block.over_tensor_axis.forward, false));
            if (block.kind == BlockKind::transformer)
              CHECK(calls[b].again == listed(run, block.over_tensor_axis.forward, true));
            CHECK(calls[b].backward == listed(run, block.over_tensor_axis.backward, false));
            CHECK_FALSE(block.over_tensor_axis.forward.empty());
          }
        }
}
