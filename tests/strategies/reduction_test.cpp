// Sums of gradients and their dtype, if gradients are sent in a narrow dtype.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "strategies/collective/libtorch.hpp"
#include "strategies/executor/reduction.hpp"
#include "strategies/zero/entry.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// Every element of every gradient is `values[m]` on each rank in micro-batch m. `least` and `most` are the smallest
/// and largest sum, `dtype` is theirs.
struct Sums {
  double least = 0, most = 0;
  torch::ScalarType dtype = torch::kFloat32;
};

Sums sums(TinyRun run, const std::vector<double>& values) {
  run.accumulation = std::ssize(values);
  ModelSpec spec = tiny_spec(run);
  ParallelPlan plan = zero_plan(tiny_job(run, spec));
  Sums result;
  run_ranks(run.world_size, [&](World& world) {
    std::vector<FlatLayout> layouts;
    for (const auto& unit : plan.units)
      layouts.push_back(make_flat_layout(spec.parameters(), unit.slots, plan.shards()));
    GradientReduction reduction(spec, plan, bind(plan.mesh, world), layouts, torch::kCPU);
    for (const auto& i : step_program(spec, plan, {}, run.accumulation)) {
      if (i.op == Op::start_reduce) reduction.start_reduce(i.unit, i.axis);
      if (i.op == Op::wait_reduce) reduction.wait_reduce(i.unit, i.axis);
      if (i.op != Op::backward) continue;
      for (const auto& parameter : spec.blocks[i.block].parameters)
        reduction.add(spec.slot(parameter.name),
                      torch::full({parameter.numel()}, values[static_cast<size_t>(i.micro_batch)], torch::kFloat16));
    }
    reduction.finish();
    if (world.rank != 0) return;
    auto first = reduction.sum(0, 0, 32);  // elements before any padding
    result = {first.min().item<double>(), first.max().item<double>(), first.scalar_type()};
  });
  return result;
}

}  // namespace

TEST_CASE("dividing gradients before their sum avoids overflow in fp16", "[reduction]") {
  TinyRun run;
  run.strategy = "zero";
  run.world_size = 2;
  run.precision = "16-mixed";
  run.options = {{"stage", GENERATE(1, 2, 3)}};
  CHECK(std::isinf(sums(run, {40'000}).most));
  run.options["gradient_predivide_factor"] = 8.0;
  auto divided = sums(run, {40'000});
  CHECK(divided.dtype == torch::kFloat32);
  CHECK(divided.least == 80'000);
  CHECK(divided.most == 80'000);
}

TEST_CASE("micro-batches are summed in the dtype of the masters", "[reduction]") {
  TinyRun run;
  run.strategy = "zero";
  run.world_size = 2;
  run.precision = "16-mixed";
  run.options = {{"stage", GENERATE(1, 2, 3)}};
  auto result = sums(run, {2048, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5});  // fp16 represents only even numbers there
  CHECK(result.least == 2 * 2052);
  CHECK(result.most == 2 * 2052);
}

TEST_CASE("rows that are added to a gradient count as much as a tensor of the parameter's shape", "[reduction]") {
  TinyRun run;
  run.world_size = 2;
  run.strategy = "zero";
  run.precision = GENERATE("32-true", "16-mixed");
  run.options = {{"stage", GENERATE(1, 2, 3)}};
  const ModelSpec spec = tiny_spec(run);
  const ParallelPlan plan = zero_plan(tiny_job(run, spec));
  const size_t slot = spec.slot("embedding.tokens.weight"), unit = 0;  // the first unit begins with this table
  const auto type = run.precision == "32-true" ? torch::kFloat32 : torch::kFloat16;
  const auto ids = torch::tensor({2, 0, 2}), rows = torch::arange(3 * run.dim).reshape({3, run.dim}).to(type);
  run_ranks(run.world_size, [&](World& world) {
    std::vector<FlatLayout> layouts;
    for (const auto& each : plan.units)
      layouts.push_back(make_flat_layout(spec.parameters(), each.slots, plan.shards()));
    GradientReduction by_rows(spec, plan, bind(plan.mesh, world), layouts, torch::kCPU),
        whole(spec, plan, bind(plan.mesh, world), layouts, torch::kCPU);
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      by_rows.add_rows(slot, ids, rows);
      whole.add(slot, torch::zeros({run.vocab, run.dim}, type).index_add_(0, ids, rows));
    }
    for (auto* reduction : {&by_rows, &whole}) {
      reduction->start_reduce(unit, Axis::shard);
      reduction->wait_reduce(unit, Axis::shard);
      reduction->finish();
    }
    if (world.rank != 0) return;  // it has the first rows
    const auto sum = by_rows.sum(unit, 0, 3 * run.dim);
    RANK_CHECK(sum.equal(whole.sum(unit, 0, 3 * run.dim)));
    RANK_CHECK(sum[run.dim - 1].item<double>() ==
               4.0 * static_cast<double>(2 * run.dim - 1));  // 2 ranks x 2 micro-batches
  });
}
