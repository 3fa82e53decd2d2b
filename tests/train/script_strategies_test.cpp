// Strategies and comm hooks in Lua, with ranks as threads: parity with their C++ versions, claims, values and errors.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/lua/shipped.hpp"
#include "runner/lua/strategy_file.hpp"
#include "runner/train/strategies/script.hpp"
#include "tests/support/measured_memory.hpp"
#include "tests/support/script_comparison.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

std::string failure_of(const TinyRun& run) {
  try {
    train_tiny(run);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("data parallelism in Lua equals ddp bit for bit", "[parity][lua]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.accumulation = GENERATE(1, 3);
  run.recompute = GENERATE(false, true);
  if (GENERATE(false, true)) run.clip_norm = 0.5;
  double bucket_cap_mb = run.recompute ? 0.01 : 25;
  for (int world_size : {1, 2, 3, 4}) {
    run.world_size = world_size;
    INFO(run.family << ", accumulation " << run.accumulation << ", recompute " << run.recompute << ", " << world_size
                    << " ranks");
    auto ddp = train_tiny(as_ddp(run));
    check_follows(train_tiny(like(run, script_run("lua:ddp", {{"bucket_cap_mb", bucket_cap_mb}}))), ddp);
    if (run.clip_norm) continue;
    for (int min_numel : {0, 500}) {
      auto zero1 = train_tiny(like(run, script_run("lua:zero1", {{"bucket_cap_mb", 0.02}, {"min_numel", min_numel}})));
      check_follows(zero1, ddp, /*norms=*/false);
      check_close(zero1.norms, ddp.norms, 1e-5);
    }
  }
}

TEST_CASE("data parallelism in Lua equals ddp with every precision, dropout, untied heads and a short last batch",
          "[parity][lua]") {
  at::set_num_threads(1);
  TinyRun run;
  run.world_size = 3;
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed", "16-mixed", "bf16-true");
  run.tied = GENERATE(false, true);
  run.dropout = 0.1;
  run.short_last = 2;
  run.accumulation = 2;
  INFO(run.precision << ", tied " << run.tied);
  check_follows(train_tiny(like(run, script_run("lua:ddp"))), train_tiny(as_ddp(run)));
}

TEST_CASE("a comm hook in Lua that sums equals ddp bit for bit, with each of the Reducer's options", "[parity][lua]") {
  at::set_num_threads(1);
  TinyRun run;
  run.world_size = GENERATE(1, 3);
  run.accumulation = GENERATE(1, 3);
  json options = GENERATE(json::object(), json{{"gradient_as_bucket_view", false}}, json{{"static_graph", true}},
                          json{{"find_unused_parameters", true}});
  options["bucket_cap_mb"] = 0.01;
  Script later(R"(return {reduce = function(bucket, ctx)
    local world = ctx.world
    return function() world:all_reduce(bucket.gradients) end
  end})");
  auto hook = GENERATE(0, 1);
  INFO(run.world_size << " ranks, accumulation " << run.accumulation << ", " << options.dump() << ", hook " << hook);
  check_follows(train_tiny(like(run, hook_run(hook == 0 ? "lua:ddp" : later.name(), json::object(), options))),
                train_tiny(as_ddp(run)));
}

TEST_CASE("memory and traffic of Lua strategies equal what their files claim", "[memory][recording][lua]") {
  at::set_num_threads(1);
  auto [name, options] = GENERATE(table<std::string, json>({{"lua:ddp", {{"bucket_cap_mb", 0.05}}},
                                                            {"lua:zero1", {{"bucket_cap_mb", 0.05}}},
                                                            {"lua:zero1", {{"min_numel", 5000}}},
                                                            {"lua:local_sgd", {{"every", 100}}}}));
  TinyRun run = script_run(name, options);
  run.world_size = 2;
  run.accumulation = GENERATE(1, 3);
  run.vocab = 503;
  run.loss_chunk_tokens = 128;
  run.dim = 128;
  run.n_layers = 2;
  INFO(name << " " << options.dump() << ", accumulation " << run.accumulation);
  ModelSpec spec = tiny_spec(run);
  Job job = tiny_job(run, spec);
  const Entry& entry = *find_strategy(name)->entry;
  auto claim = entry.memory(job);
  auto measured = measure_memory(run);
  CHECK(measured.between_steps == claim.between_steps);
  CHECK_THAT(static_cast<double>(claim.total()), WithinRel(static_cast<double>(measured.peak), 0.03));
  if (!entry.traffic) return;
  std::map<std::string, std::pair<int64_t, int64_t>> claimed, seen;
  for (const auto& part : entry.traffic(job)) claimed[part.collective] = {part.calls, part.payload_bytes};
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      if (world.rank == 0)
        world.trace->observe([&](const CollectiveCall& call) {
          if (call.group == World::control_index) return;
          auto& sum = seen[name_of(call.operation.kind)];
          sum = {sum.first + 1, sum.second + static_cast<int64_t>(call.operation.bytes)};
        });
      strategy.step(tiny_input(run, world.rank, 0));
      world.trace->observe({});
    });
  });
  CHECK(seen == claimed);
}

TEST_CASE("tensors that a Lua strategy no longer uses are freed early", "[memory][lua]") {
  at::set_num_threads(1);
  Script plain("return {reduce = function(bucket, ctx) ctx.world:all_reduce(bucket.gradients) end}");
  Script wasteful(R"(return {reduce = function(bucket, ctx)
    for _ = 1, 40 do -- 1 MiB each
      local made = ctx:zeros(1 << 18)
      local also = {made:clone(), made:to("float32"), made + 1, made:take(made:to("int64")), made:largest(1 << 17)}
    end
    ctx.world:all_reduce(bucket.gradients)
  end})");
  constexpr int64_t mib = int64_t{1} << 20;
  CHECK(measure_memory(script_run(wasteful.name())).peak <
        measure_memory(script_run(plain.name())).peak + 64 * mib + 16 * mib);
}

TEST_CASE("a strategy that fails ends the training with the place of the error", "[lua]") {
  at::set_num_threads(1);
  struct Case {
    std::string text, failure;
  };
  // `%` is replaced by the file name.
  std::vector<Case> cases = {
      {"return {reduce = function() while true do end end}",
       "failed in reduce: %:1: took more than 100000 Lua instructions"},
      {"return {reduce = function() while true do pcall(error) end end}",
       "failed in reduce: %:1: took more than 100000 Lua instructions"},
      {"return {reduce = function() return function() local t = {} while true do t[#t + 1] = t end end end}",
       "failed in reduce: %:1: took more than 100000 Lua instructions"},
      {"return {reduce = function(bucket) local s = ('x'):rep(1e9) end}", "failed in reduce: %:1: "},
      {"return {\n  reduce = function(bucket, ctx) error('broken on ' .. ctx.world.rank) end}",
       "failed in reduce: %:2: broken on "},
      {"return {reduce = function() return 7 end}", "`reduce` must return a work, a function or nothing, not a number"},
      {"return {reduce = function(bucket) bucket.parameters:zero_() end}",
       "failed in reduce: %:1: parameters cannot change inside a step: change them in setup, setup_module or "
       "after_update"},
      {"return {reduce = function(bucket, ctx) ctx:kept('velocity'):zero_() end}",
       "failed in reduce: %:1: kept: there is no tensor `velocity`; create it in setup: ctx:kept(name, numel)"},
      {"return {reduce = function(bucket, ctx) ctx.world:all_gather(bucket.gradients, bucket.gradients) end}",
       "all_gather: argument 1 must have "},
      {"return {reduce = function(bucket, ctx) local world, none = ctx.world world:all_reduse(bucket.gradients) end}",
       "failed in reduce: %:1: a world has no `all_reduse`; did you mean `all_reduce`?"},
      {"return {reduce = function(bucket, ctx) ctx.world:all_reduce(bucket.gradients, 'avg') end}",
       "failed in reduce: %:1: all_reduce: argument 2 must be \"sum\", \"mean\", \"product\", \"min\" or \"max\", "
       "not \"avg\""},
      {"return {setup = function() nothing() end, reduce = function() end}",
       "failed in setup: %:1: attempt to call a nil value (global 'nothing')"},
      {"return {reduce = function(bucket, ctx) ctx:zeros(0):min() end}", "failed in reduce: %:1: min(): Expected "},
      {"return {reduce = function(bucket, ctx) ctx:zeros(2, 'int64'):add_(1.5) end}",
       "failed in reduce: %:1: result type "},
      {"return {reduce = function(bucket, ctx) ctx:zeros(math.maxinteger) end}", "failed in reduce: %:1: "},
      {"return {reduce = function(bucket) bucket.gradients:take(bucket.gradients:to('int64'):scale_(0):add_(1 << 40)) "
       "end}",
       "failed in reduce: %:1: "},
      {"return {setup = function(ctx) ctx:kept('huge', math.maxinteger) end, reduce = function() end}",
       "failed in setup: %:1: "},
      {"return {reduce = function() end, after_update = function() local x = nil + 1 end}",
       "failed in after_update: %:1: "},
      {"return {reduce = function() end, setup = function() coroutine.wrap(function() while true do end end)() end}",
       "failed in setup: %:1: took more than 100000 Lua instructions"},
      {"return {reduce = function() end, shard = function(parameter) return parameter.nothing.at_all end}",
       "failed in shard: "},
  };
  for (const auto& [text, failure] : cases) {
    INFO(text);
    Script script(text);
    auto run = script_run(script.name(), json::object(), [&](Recipe& recipe) {
      recipe.hooks.instruction_limit = 100'000;
      Origin place;
      place.kind = Origin::Kind::file;
      place.file = "recipe.toml";
      place.line = 3;
      place.column = 8;
      recipe.origins["strategy.name"] = place;
    });
    run.world_size = 2;
    run.accumulation = 2;
    std::string expected = failure;
    if (auto at = expected.find('%'); at != std::string::npos) expected.replace(at, 1, script.path().string());
    auto said = failure_of(run);
    CHECK_THAT(said, StartsWith("strategy " + script.name()) && ContainsSubstring(expected));
    if (failure.starts_with("failed in"))
      CHECK_THAT(said, ContainsSubstring("\n  the recipe names it at recipe.toml:3:8"));
  }
}

TEST_CASE("a rank that calls another collective than the others is detected", "[lua]") {
  at::set_num_threads(1);
  Script script(R"(return {reduce = function(bucket, ctx)
    if ctx.step == 2 and ctx.world.rank == 1 then return ctx.world:broadcast_async(bucket.gradients) end
    return ctx.world:all_reduce_async(bucket.gradients)
  end})");
  auto run = script_run(script.name());
  run.world_size = 3;
  CHECK_THAT(
      failure_of(run),
      StartsWith("ranks diverged: ranks 0, 2 are in all_reduce #5 (158.8 KiB of float32), rank 1 in broadcast #5 "
                 "(158.8 KiB of float32 from rank 0)"));
}

TEST_CASE("tensors and collectives of a strategy compute correct values", "[lua]") {
  at::set_num_threads(1);
  Script script(R"(
    local function same(a, b) assert(math.abs(a - b) < 1e-6, a .. " instead of " .. b) end
    return {
      setup = function(ctx, state)
        local world, size, rank = ctx.world, ctx.world.size, ctx.world.rank
        local t = ctx:zeros(6)
        same(t.numel, 6)
        t:add_(2):narrow(2, 3):scale_(-3)
        same(t:sum(), 2 * 3 - 6 * 3); same(t:mean(), -2); same(t:min(), -6); same(t:max(), 2)
        same(t:norm(), math.sqrt(3 * 4 + 3 * 36))
        local where = t:largest(3)
        same(t:take(where):sum(), -18)
        same((t * 2 - t / 2 + 1):sum(), -12 * 1.5 + 6)
        same((1 - t):sum(), 18)
        t:put_(where, 0); same(t:sum(), 6)
        t:put_(where, t:take(where):add_(5)); same(t:sum(), 21)
        t:index_add_(where, t:take(where)); same(t:sum(), 36)
        same(t:to("bfloat16"):to("float32"):sum(), 36)
        assert(t:is_finite()); assert(not (t / 0):is_finite())
        local copy = t:clone():zero_(); same(t:sum(), 36); same(copy:copy_(t):sum(), 36)
        same(copy:lerp_(t * 3, 0.5):sum(), 72); same((-t):abs():sum(), 36); same(ctx:zeros(3):exp():sum(), 3)
        same(t.shape[1], 6); same((ctx:zeros(2) + 3):pow(2):max(), 9); same(#t:histogram(4).counts, 4)
        local ok, why = pcall(t.softmax, t)
        assert(not ok and why:find("softmax: only the tensors of `loss` have rows and columns, not [6]", 1, true), why)

        local mine = ctx:zeros(2):add_(rank + 1)
        same(world:all_reduce(mine:clone()):sum(), size * (size + 1))
        same(world:all_reduce(mine:clone(), "max"):max(), size)
        same(world:all_reduce(mine:clone(), "min"):max(), 1)
        same(world:all_reduce(mine:clone(), "mean"):max(), (size + 1) / 2)
        local factorial = 1
        for other = 1, size do factorial = factorial * other end
        same(world:all_reduce(mine:clone(), "product"):max(), factorial)
        local later = mine:clone()
        local mean = world:all_reduce_async(later, "mean")
        mean:wait(); mean:wait()
        same(later:min(), (size + 1) / 2)
        local all = world:all_gather(ctx:zeros(2 * size), mine)
        for other = 0, size - 1 do same(all:narrow(2 * other, 2):sum(), 2 * (other + 1)) end
        local part = world:reduce_scatter(ctx:zeros(2), all)
        same(part:sum(), 2 * size * (rank + 1))
        same(world:reduce_scatter(ctx:zeros(2), all, "mean"):sum(), 2 * (rank + 1))
        local whole, sorry = pcall(world.all_reduce, world, t:largest(2), "mean")
        assert(not whole and sorry:find("a mean is one of floating-point numbers", 1, true), sorry)
        same(world:broadcast(mine:clone(), size - 1):sum(), 2 * size)
        for by = -size, 2 * size do
          local work = world:shift_async(part, mine, by)
          work:wait()
          same(part:sum(), 2 * ((rank - by) % size + 1))
        end
        local large = ctx:zeros(700001):add_(rank)
        same(world:shift(ctx:zeros(700001), large, 1):max(), (rank - 1) % size)
        world:barrier()
        state.done = true
      end,
      reduce = function(bucket, ctx, state) assert(state.done); ctx.world:all_reduce(bucket.gradients) end,
    })");
  auto run = script_run(script.name());
  run.world_size = GENERATE(1, 2, 3);
  INFO(run.world_size << " ranks");
  check_follows(train_tiny(run), train_tiny(as_ddp(run)));
}

TEST_CASE("the editor's type definitions contain every name of the objects of a strategy", "[lua]") {
  const std::string stubs = lua::stubs_text;
  const std::map<std::string, std::vector<std::string>> tables = {{"context", {"strategy_context"}},
                                                                  {"bucket", {}},
                                                                  {"model", {"strategy_model"}},
                                                                  {"world", {"ranks", "strategy_world"}},
                                                                  {"group", {"ranks"}},
                                                                  {"work", {"work"}},
                                                                  {"tensor", {"tensor"}}};
  for (const auto* kind : strategy_classes()) {
    for (const auto& [name, body] : kind->methods()) {
      INFO(kind->name() << ":" << name);
      CHECK(std::ranges::any_of(tables.at(kind->name()), [&](const auto& table) {
        return stubs.find("function " + table + ":" + name + "(") != std::string::npos;
      }));
    }
    for (const auto& [name, body] : kind->properties()) {
      INFO(kind->name() << "." << name);
      CHECK((stubs.find("---@field " + name + " ") != std::string::npos ||
             stubs.find("---@field " + name + "? ") != std::string::npos));
    }
  }
}

TEST_CASE("the known names of a strategy's objects are those of a training", "[lua]") {
  std::map<std::string, std::vector<std::string>> real, known;
  for (const auto* kind : strategy_classes())
    if (kind->name() != "group" && kind->name() != "work") real[kind->name()] = kind->members();
  const std::function<void(const lua::ObjectNames&)> add = [&](const lua::ObjectNames& object) {
    known[object.name] = object.members;
    for (const auto& [name, part] : object.parts) add(part);
  };
  for (const auto& [function, objects] : lua::strategy_arguments())
    for (const auto& object : objects) add(object);
  for (auto* classes : {&real, &known})
    for (auto& [name, members] : *classes) std::ranges::sort(members);
  CHECK(real == known);
}
