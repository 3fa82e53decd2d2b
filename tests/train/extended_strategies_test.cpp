// Strategies in Lua that extend a built-in one, with ranks as threads: equality with the base, and the effect of each function.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/every_nth.hpp"
#include "tests/support/measured_memory.hpp"
#include "tests/support/script_comparison.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

const std::vector<std::string> bases = {"ddp", "fsdp", "deepspeed_stage_1", "deepspeed_stage_2", "deepspeed_stage_3"};

/// A run with the built-in strategy. Its options are those of the alias.
TinyRun as_base(const TinyRun& run, const std::string& base) {
  TinyRun changed = run;
  changed.strategy = base;
  changed.options = find_listed_strategy(base)->preset;
  changed.make = nullptr;
  return changed;
}

/// The file of a strategy with this base and these other fields.
std::string extending(const std::string& base, const std::string& fields = "") {
  return "return {base = '" + base + "', " + fields + "}";
}

const std::string sums = R"(
  reduce = function(bucket, ctx)
    if bucket.sharded then return ctx.world:reduce_scatter_async(bucket.shard, bucket.gradients) end
    return ctx.world:all_reduce_async(bucket.gradients)
  end, )";

const std::string own_units = R"(
  units = function(blocks)
    local units = {{}, {}}
    for i, block in ipairs(blocks) do
      for _, parameter in ipairs(block.parameters) do table.insert(units[i % 2 + 1], parameter.name) end
    end
    return units
  end, )";

json scalars_of(const TinyRun& run) {
  json scalars;
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      strategy.step(tiny_input(run, world.rank, 0));
      if (world.rank == 0) scalars = strategy.scalars();
    });
  });
  return scalars;
}

std::string failure_of_run(const TinyRun& run) {
  try {
    train_tiny(run);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("an extension without functions has the bits of its base: losses, state and scalars", "[parity][lua]") {
  at::set_num_threads(1);
  const auto base = GENERATE(from_range(bases));
  TinyRun run;
  run.accumulation = GENERATE(1, 3);
  run.precision = GENERATE("32-true", "bf16-mixed");
  static EveryNth chosen(5);
  for (const int ranks : {1, 2, 4}) {
    if (!chosen()) continue;
    run.world_size = ranks;
    INFO(base << ", accumulation " << run.accumulation << ", " << run.precision << ", " << ranks << " ranks");
    Script plain(extending(base)), idle(extending(base, R"(
      setup = function(ctx) assert(#ctx.buckets > 0) end,
      setup_module = function(model, ctx) assert(model:parameter("embedding.tokens.weight"):norm() > 0) end,
      after_update = function(ctx, state) state.steps = ctx.step end, )"));
    const auto expected = train_tiny(as_base(run, base));
    auto mine = train_tiny(like(run, script_run(plain.name())));
    check_follows(mine, expected);
    CHECK(mine.state.size() == expected.state.size());
    CHECK(scalars_of(like(run, script_run(plain.name()))) == scalars_of(as_base(run, base)));
    mine = train_tiny(like(run, script_run(idle.name())));
    check_follows(mine, expected);
    CHECK(scalars_of(like(run, script_run(idle.name()))).at("extension").dump().find("steps") != std::string::npos);
  }
}

TEST_CASE("an extension trains the same parameters in its own units", "[parity][lua]") {
  at::set_num_threads(1);
  const auto base = GENERATE(from_range(bases));
  TinyRun run;
  run.world_size = GENERATE(1, 2, 3);
  run.accumulation = GENERATE(1, 2);
  run.tied = GENERATE(false, true);
  run.recompute = run.tied;
  INFO(base << ", " << run.world_size << " ranks, accumulation " << run.accumulation << ", tied " << run.tied);
  Script script(extending(base, own_units));
  const auto mine = train_tiny(like(run, script_run(script.name()))), expected = train_tiny(as_base(run, base));
  check_follows(mine, expected, /*norms=*/false);
  check_close(mine.norms, expected.norms, 1e-5);
}

TEST_CASE("`reduce` of an extension replaces the sums, with shards and without", "[parity][lua]") {
  at::set_num_threads(1);
  const auto base = GENERATE(from_range(bases));
  TinyRun run;
  run.world_size = GENERATE(1, 2, 3);
  run.accumulation = GENERATE(1, 2);
  const bool units = GENERATE(false, true);
  INFO(base << ", " << run.world_size << " ranks, accumulation " << run.accumulation << ", own units " << units);
  Script script(extending(base, sums + (units ? own_units : "")));
  const auto mine = train_tiny(like(run, script_run(script.name()))), expected = train_tiny(as_base(run, base));
  if (run.accumulation == 1) {
    check_follows(mine, expected, /*norms=*/false);
  } else {  // the base adds sums of micro-batches, and the function sums what they add up to
    check_close(mine.losses, expected.losses, 1e-4);
  }
  check_close(mine.norms, expected.norms, 1e-4);
  Script half(extending(base, R"(reduce = function(bucket, ctx)
    bucket.gradients:scale_(0.5)
    if bucket.sharded then ctx.world:reduce_scatter(bucket.shard, bucket.gradients)
    else ctx.world:all_reduce(bucket.gradients) end
  end)"));
  CHECK_THAT(train_tiny(like(run, script_run(half.name()))).norms.front(), WithinRel(expected.norms.front() / 2, 1e-4));
}

TEST_CASE("`setup_module` reads and changes parameters before the first step", "[lua]") {
  at::set_num_threads(1);
  const auto base = GENERATE(from_range(bases));
  TinyRun run;
  run.world_size = GENERATE(1, 2, 3);
  run.precision = GENERATE("32-true", "bf16-mixed");
  run.tied = false;
  INFO(base << " on " << run.world_size << " ranks, " << run.precision);
  Script script(extending(base, R"(
    options = {factor = {type = "number", default = 0.5}},
    setup_module = function(model, ctx, state, options)
      assert(ctx.step == 0 and #model:parameter_names() > 10)
      local head = model:parameter("head.weight")
      local before = head:norm()
      head:scale_(options.factor)
      assert(math.abs(head:norm() - before * options.factor) < 1e-4 * before)
      state.before = before
    end, )"));
  auto expected = as_base(run, base);
  expected.change_source = [](const ModelSpec& spec, ParameterSource source) -> ParameterSource {
    const size_t head = spec.stored_index("head.weight");
    return [=](size_t slot, int64_t offset, std::span<float> out) {
      source(slot, offset, out);
      if (slot == head)
        for (float& value : out) value *= 0.5F;
    };
  };
  check_follows(train_tiny(like(run, script_run(script.name()))), train_tiny(expected));
}

TEST_CASE("`after_update` changes parameters of every base in the same way", "[lua]") {
  at::set_num_threads(1);
  const std::string decay = R"(after_update = function(ctx)
    for _, name in ipairs(ctx.model:parameter_names()) do
      if name:find("mlp") then ctx.model:parameter(name):scale_(0.9) end
    end
  end, )";
  TinyRun run;
  run.world_size = GENERATE(1, 2, 3);
  Script reference(extending("ddp", decay));
  const auto expected = train_tiny(like(run, script_run(reference.name())));
  CHECK(expected.losses != train_tiny(as_ddp(run)).losses);
  for (const auto& base : bases) {
    INFO(base << " on " << run.world_size << " ranks");
    Script script(extending(base, decay));
    const auto mine = train_tiny(like(run, script_run(script.name())));
    check_close(mine.losses, expected.losses, 1e-4);
  }
  // The parameters of a bucket, for bases that have all of them between steps.
  Script whole(extending("ddp", R"(after_update = function(ctx)
    for _, bucket in ipairs(ctx.buckets) do bucket.parameters:scale_(0.9) end end)"));
  Script sharded(extending("fsdp", R"(after_update = function(ctx)
    for _, bucket in ipairs(ctx.buckets) do assert(bucket.parameters == nil or ctx.world.size == 1)
      assert(bucket.gradients == nil and bucket.numel > 0) end end)"));
  CHECK(train_tiny(like(run, script_run(whole.name()))).losses != expected.losses);
  CHECK(failure_of_run(like(run, script_run(sharded.name()))).empty());
}

TEST_CASE("functions of an extension see whole parameters on a tensor axis and on a context axis", "[lua]") {
  at::set_num_threads(1);
  const std::string base = GENERATE("ddp", "fsdp", "deepspeed_stage_1");
  const auto [tensor, context] = GENERATE(table<int, int>({{2, 1}, {1, 2}}));
  INFO(base << ", tensor " << tensor << ", context " << context);
  Script script(extending(base, own_units + R"(
    setup_module = function(model) model:parameter("blocks.0.mlp.up.weight"):scale_(0.5) end,
    after_update = function(ctx, state)
      local parameter = ctx.model:parameter("blocks.1.attention.qkv.weight")
      parameter:scale_(1 - 0.01 * parameter:norm() / (1 + parameter:norm()))
    end, )"));
  TinyRun run = script_run(script.name());
  run.world_size = 2;
  const auto expected = train_tiny(run);
  run.world_size = 4;
  run.tensor = tensor;
  run.context = context;
  const auto mine = train_tiny(run);
  check_close(mine.losses, expected.losses, 1e-4);
}

TEST_CASE("an extension of ddp can have a comm hook, each with state of its own", "[lua]") {
  at::set_num_threads(1);
  Script script(extending("ddp", R"(
    setup = function(ctx) ctx:kept("residual1", 3) end,
    after_update = function(ctx, state) ctx:kept("residual1"):add_(1) state.n = (state.n or 0) + 1 end, )"));
  Recipe recipe;
  recipe.strategy.options = {{"ddp_comm_hook", "lua:topk"}, {"ddp_comm_hook_options", {{"density", 0.1}}}};
  auto run = script_run(script.name(), recipe.strategy.options);
  run.world_size = 2;
  const auto make = run.make;
  recipe.strategy.name = script.name();
  run.make = [=](StrategySetup setup) {
    setup.reducer = make_script_comm_hook(recipe, setup.world);
    return make(std::move(setup));
  };
  const auto mine = train_tiny(run), expected = train_tiny(like(run, hook_run("lua:topk", {{"density", 0.1}})));
  check_follows(mine, expected);
  CHECK(mine.state.at("lua/strategy/residual1") == std::vector<float>(6, 5));
}

TEST_CASE("memory of an extension is predicted with its units and its reduction", "[memory][lua]") {
  at::set_num_threads(1);
  const std::string base = GENERATE("ddp", "fsdp", "deepspeed_stage_1", "deepspeed_stage_3");
  const bool reduces = GENERATE(false, true);
  Script script(extending(base, own_units + (reduces ? sums + "memory = function() return 0 end" : "")));
  TinyRun run = script_run(script.name());
  run.world_size = 2;
  run.accumulation = GENERATE(1, 3);
  run.vocab = 503;
  run.loss_chunk_tokens = 128;
  run.dim = 128;
  run.n_layers = 2;
  INFO(base << ", reduces " << reduces << ", accumulation " << run.accumulation);
  ModelSpec spec = tiny_spec(run);
  Job job = tiny_job(run, spec);
  const auto claim = find_strategy(run.strategy)->entry->memory(job);
  const auto measured = measure_memory(run);
  CHECK(measured.between_steps == claim.between_steps);
  CHECK_THAT(static_cast<double>(claim.total()), WithinRel(static_cast<double>(measured.peak), 0.03));
}

TEST_CASE("groups of ranks have collectives, and barriers have names", "[lua]") {
  at::set_num_threads(1);
  Script script(R"(return {base = "ddp",
    setup = function(ctx, state)
      local world = ctx.world
      local node = world:group("node")
      assert(node.size == 2 and node.name == "node" and node.rank == world.rank % 2)
      assert(node.ranks[1] == world.rank - world.rank % 2 and #node.ranks == 2)
      local across = world:group("across", {{0, 2}, {1, 3}})
      local some = world:group("some", {3, 1})
      assert((some ~= nil) == (world.rank % 2 == 1))
      local mine = ctx:zeros(4):add_(world.rank)
      assert(node:all_reduce(mine:clone()):max() == 2 * world.rank - world.rank % 2 + 1 - world.rank % 2)
      assert(across:all_gather(ctx:zeros(8), mine):sum() == 4 * (2 * (world.rank % 2) + 2))
      assert(node:broadcast(mine:clone(), 1):min() == node.ranks[2])
      local work = across:all_reduce_async(mine, "max")
      work:wait()
      assert(mine:min() == world.rank % 2 + 2)
      world:barrier("done") node:barrier("of the node") world:barrier()
    end,
    after_update = function(ctx)
      assert(ctx.world:group("node").size == 2)
      if ctx.world.rank == 0 then assert(ctx.world:group("some") == nil) end
      if ctx.world.rank % 2 == 1 then ctx.world:group("some"):barrier() end
    end, })");
  TinyRun run = script_run(script.name());
  run.world_size = 4;
  run.local_size = 2;
  check_follows(train_tiny(run), train_tiny(as_ddp(run)));
}

TEST_CASE("mistakes in functions of an extension are errors with their place", "[lua]") {
  at::set_num_threads(1);
  const auto says = [](const std::string& fields, const std::string& what, const std::string& base = "fsdp") {
    INFO(fields);
    Script script(extending(base, fields));
    const auto failure = [&]() -> std::string {
      try {
        TinyRun run = script_run(script.name());
        run.world_size = 2;
        run.steps = 1;
        return failure_of_run(run);
      } catch (const Error& error) {  // of the file, before it runs
        return error.what();
      }
    };
    CHECK_THAT(failure(), ContainsSubstring(what));
  };
  says("setup = function(ctx) ctx.world:barrier(ctx.world.rank == 0 and 'left' or 'right') end",
       "barrier: ranks wait in different barriers: rank 0 in `left`, rank 1 in `right`");
  says("setup = function(ctx) ctx.world:barrier(ctx.world.rank == 0 and 'left' or '') end",
       "barrier: ranks wait in different barriers: rank 1 in a barrier without a name, rank 0 in `left`");
  says(
      "setup = function(ctx) ctx.world:group('pair', {ctx.world.rank}) end",
      "group: every rank must make the same groups, in the same order: rank 0 in `pair [[0]]`, rank 1 in `pair [[1]]`");
  says("setup = function(ctx) ctx.world:group('pair', {0, 2}) end", "group: `pair`: 2 is not a rank of 2");
  says("setup = function(ctx) ctx.world:group('pair', {{0}, {0}}) end", "group: `pair`: rank 0 is in it twice");
  says("setup = function(ctx) ctx.world:group('pair') end",
       "group: `pair`: give the ranks, such as {0, 1}; only \"node\" needs none");
  says("after_update = function(ctx) ctx.world:group('late', {0}) end",
       "group: there is no group `late`; make it in setup, on every rank: world:group(\"late\", {0, 1})");
  says("setup_module = function(model) model:parameter('head.nrom.weight') end",
       "parameter: the model has no parameter \"head.nrom.weight\"; did you mean \"head.norm.weight\"?");
  says("setup_module = function(model, ctx)\n ctx.modle:parameter('x') end",
       "mine.lua:2:6: error: a context has no `modle`; it has kept, zeros, buckets, loss_scale, model, step, world\n");
  says(
      "setup_module = function(model, ctx, state) state.kept = model:parameter('embedding.tokens.weight') end, "
      "after_update = function(ctx, state) state.kept:norm() end",
      "a tensor of model:parameter() is valid during one call of `setup_module`");
  says("reduce = function(bucket, ctx) ctx.model:parameter('embedding.tokens.weight') end",
       "parameter: not inside of a step: call it in setup, setup_module or after_update");
  says(
      "after_update = function(ctx) local tokens = ctx.model:parameter('embedding.tokens.weight')\n"
      "if ctx.world.rank == 0 then tokens:scale_(2) end end",
      "failed in after_update: parameters are changed on some ranks only; all ranks must make the same changes");
  says(
      "after_update = function(ctx) if ctx.world.rank == 1 then ctx.model:parameter('head.norm.weight'):norm() end end",
      "mine.lua:1: norm of head.norm.weight: every rank must call it, in the same order: rank 0 is at the end of the "
      "call, rank 1 at norm of head.norm.weight");
  const std::string long_name = "local name = ('x'):rep(300) .. ctx.world.rank ";
  says("setup = function(ctx) " + long_name + "ctx.world:barrier(name) end", "xxx... (hash ");
  says("setup = function(ctx) " + long_name + "ctx.world:group(name, {0, 1}) end",
       "group: every rank must make the same groups, in the same order: ");
}
