// The collectives and messages of blocks over the context axis are those that their specs list.
#include <catch2/catch_test_macros.hpp>

#include "context_model.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

using Calls = std::vector<std::string>;

struct BlockCalls {
  Calls forward, again, backward;
};

/// Of a message there are two calls, one for each side.
std::string text_of(Collective kind, int64_t bytes) { return fmt::format("{} {}", name_of(kind), bytes); }

/// The calls of the first rank in groups of the context axis: in the forward of each block, in a forward of which nothing reads the output,
/// and in its backward.
std::vector<BlockCalls> called(const ContextRun& run) {
  std::vector<BlockCalls> calls(run.spec(0).blocks.size());
  run_ranks(run.world(), [&](World& world) {
    const RankAxes axes(run, world);
    auto batch = cut_tokens(run.divided.batch.fields, run.context(world.rank));
    batch.fields = batch.host_fields;
    const auto model = build_model(run.divided.recipe, run.spec(world.rank));
    for (size_t slot = 0; slot < model->slots.size(); ++slot) {
      const auto& parameter = *model->spec.parameters()[slot];
      model->slots[slot] = torch::rand(parameter.shape).requires_grad_(parameter.trainable);
    }
    Calls noted;
    const auto groups = world.trace->groups();
    world.trace->observe([&](const CollectiveCall& call) {
      const auto& name = groups.at(static_cast<size_t>(call.group)).name;
      if (!name.starts_with("tensor"))
        noted.push_back(text_of(call.operation.kind, static_cast<int64_t>(call.operation.bytes)));
    });
    torch::Tensor x;
    for (size_t b = 0; b < calls.size(); ++b) {
      ForwardContext context{
          .batch = &batch, .dropout_key = 1, .tensor_axis = axes.tensor_axis(), .context_axis = &*axes.context};
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
      if (output.requires_grad()) output.backward(torch::ones_like(output));
      of_block.backward = std::exchange(noted, {});
      x = output.detach().requires_grad_(model->spec.passes_gradient(b + 1));
      if (world.rank == 0) calls[b] = of_block;
    }
    world.trace->observe(nullptr);
  });
  return calls;
}

/// Those that the spec lists.
Calls listed(const ContextRun& run, const std::vector<BlockCollective>& list) {
  const int64_t tokens = run.divided.batch.rows * run.spec(0).seq_len;
  Calls calls;
  for (const auto& one : list) {
    const int64_t element = one.values == BlockCollective::Values::compute ? 2 : 4;
    const auto bytes = static_cast<int64_t>(one.elements_per_token * static_cast<double>(tokens)) * element;
    calls.insert(calls.end(), one.kind == Collective::transfer ? 2 : 1, text_of(one.kind, bytes));
  }
  return calls;
}

void check_calls(const ContextRun& run) {
  INFO(describe(run));
  const auto spec = run.spec(0);
  const auto calls = called(run);
  for (size_t b = 0; b < calls.size(); ++b) {
    const auto& block = spec.blocks[b];
    INFO(block.name);
    CHECK(calls[b].forward == listed(run, block.over_context_axis.forward));
    if (block.kind != BlockKind::head) CHECK(calls[b].again == calls[b].forward);
    CHECK(calls[b].backward == listed(run, block.over_context_axis.backward));
  }
}

}  // namespace

TEST_CASE("blocks of context ranks call what their specs list, in forward, in recomputation and in backward") {
  for (auto recipe : {gpt_recipe(), llama_recipe(), family_recipe("gemma2"), family_recipe("gpt_neox")})
    for (double dropout : {0.0, 0.1})
      for (int ranks : {2, 4})
        for (int tensor_ranks : {1, 2}) {
          recipe.dropout = dropout;
          recipe.dim = 64;
          recipe.n_heads = 8;
          const DividedRun divided{
              .recipe = recipe, .ranks = tensor_ranks, .batch = small_batch(3, 11, 61), .dtype = torch::kFloat32};
          for_each_form(divided, ranks, check_calls);
        }
}

TEST_CASE("attention of which nothing is trained calls nothing in backward") {
  for (const auto& frozen :
       std::vector<std::vector<std::string>>{{"embedding.*", "blocks.0.attention*"},
                                             {"embedding.*", "*.wq.*", "*.wk.*", "*.attention_norm.*"},
                                             {"embedding.*"}}) {
    auto recipe = llama_recipe();
    recipe.frozen = frozen;
    const DividedRun divided{.recipe = recipe, .ranks = 1, .batch = small_batch(3, 11, 61), .dtype = torch::kFloat32};
    for_each_form(divided, 2, check_calls);
    const auto first = ContextRun{.divided = divided}.spec(0).blocks[1].over_context_axis.backward.size();
    CHECK(first == (frozen.size() == 2 ? 0 : 2));
  }
}

TEST_CASE("the bytes of each form") {
  const auto recipe = llama_recipe();  // 4 heads, 2 key heads
  const auto bytes = [&](ContextForm form, bool backward) {
    const auto block = make_spec(recipe, 61, 11, RowKind::one_sequence, {}, {.ranks = 2, .form = form}).blocks[1];
    double elements = 0;
    for (const auto& one : backward ? block.over_context_axis.backward : block.over_context_axis.forward)
      elements += one.elements_per_token;
    return elements;
  };
  const double q = 4 * 8, kv = 2 * 2 * 8;
  CHECK(bytes(ContextForm::gather, false) == 2 * kv);
  CHECK(bytes(ContextForm::gather, true) == 4 * kv);
  CHECK(bytes(ContextForm::ring, false) == kv);
  CHECK(bytes(ContextForm::ring, true) == 3 * kv);
  CHECK(bytes(ContextForm::ulysses, false) == 2 * q + kv);
  CHECK(bytes(ContextForm::ulysses, true) == 2 * q + kv);
}
