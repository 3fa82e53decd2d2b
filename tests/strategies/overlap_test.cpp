// All-gathers and reductions that overlap computation do not change results, and their memory is predicted.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "strategies/collective/libtorch.hpp"
#include "strategies/executor/executor.hpp"
#include "strategies/fsdp/entry.hpp"
#include "strategies/program/program.hpp"
#include "strategies/zero/entry.hpp"
#include "tests/support/deferred_group.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/measured_memory.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

ParallelPlan overlapping_plan(const std::string& strategy, const Job& job) {
  ParallelPlan plan = strategy == "zero" ? zero_plan(job) : fsdp_plan(job);
  plan.overlap = plan.prefetches = true;
  return plan;
}

/// The plan of the job with all overlap that CUDA uses, on groups that complete each collective as late as possible.
std::unique_ptr<Strategy> make_overlapped(StrategySetup setup) {
  defer_groups(setup.world);
  ParallelPlan plan = overlapping_plan(setup.job.options.contains("stage") ? "zero" : "fsdp", setup.job);
  return make_executor(std::move(setup), std::move(plan));
}

struct OverlapForm {
  std::string strategy;
  nlohmann::json options;
};

/// Forms with a reduction per micro-batch. A unit's reduction may be in flight when its next gradient arrives.
std::vector<OverlapForm> overlap_forms() {
  return {
      {"zero", {{"stage", 2}, {"reduce_bucket_size", 10'000'000}}},
      {"zero", {{"stage", 2}, {"reduce_bucket_size", 10'000'000}, {"reduce_scatter", false}}},
      {"zero", {{"stage", 2}, {"reduce_bucket_size", 5000}}},
      {"zero", {{"stage", 3}, {"mics_shard_size", 2}}},
      {"zero", {{"stage", 1}, {"gradient_predivide_factor", 8.0}}},
      {"fsdp", {{"reduce_every_micro_batch", true}, {"auto_wrap_policy", "none"}}},
      {"fsdp", {{"reduce_every_micro_batch", true}}},
      {"fsdp", {{"reduce_every_micro_batch", true}, {"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", 2}}}};
}

}  // namespace

TEST_CASE("reductions that complete in their wait lose no gradient of any micro-batch", "[parity][overlap]") {
  at::set_num_threads(1);
  TinyRun run;
  run.world_size = 4;
  run.accumulation = 3;
  run.tied = GENERATE(false, true);
  for (const auto& form : overlap_forms()) {
    run.strategy = form.strategy;
    run.options = form.options;
    run.make = nullptr;
    auto plain = train_tiny(run);
    run.make = make_overlapped;
    auto overlapped = train_tiny(run);
    INFO(form.strategy << " " << form.options.dump() << ", tied " << run.tied);
    CHECK(overlapped.losses == plain.losses);
    CHECK(overlapped.state == plain.state);
  }
}

namespace {

/// Plans that prefetch one or several units, in forward, backward or both.
std::vector<OverlapForm> gathering_forms() {
  nlohmann::json all_sharded{{"stage", 3}, {"stage3_param_persistence_threshold", 0}, {"stage3_max_reuse_distance", 0}};
  auto with = [&](nlohmann::json more) {
    nlohmann::json options = all_sharded;
    options.update(more);
    return options;
  };
  return {{"fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
          {"fsdp", {{"backward_prefetch", "BACKWARD_POST"}}},
          {"fsdp", {{"backward_prefetch", "NONE"}}},
          {"fsdp", {{"sharding_strategy", "SHARD_GRAD_OP"}}},
          {"fsdp", {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", 2}}},
          {"fsdp", {{"auto_wrap_policy", {"blocks.1", "blocks.2"}}}},
          {"zero", with({{"stage3_prefetch_bucket_size", 1}})},
          {"zero", with({{"stage3_prefetch_bucket_size", 10'000'000}})},
          {"zero", with({{"stage3_prefetch_bucket_size", 30'000}, {"stage3_param_persistence_threshold", 500}})},
          {"zero", with({{"mics_shard_size", 2}})},
          {"zero", {{"stage", 2}, {"allgather_partitions", false}}}};
}

}  // namespace

TEST_CASE("prefetched units that arrive in their wait change no bit", "[parity][overlap]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.tied = run.family == "gpt";
  run.world_size = 4;
  run.n_layers = 4;
  run.accumulation = GENERATE(1, 2);
  auto recomputed = GENERATE(as<std::string>(), "", "blocks.1", "*");
  if (!recomputed.empty()) run.checkpointing = {.mode = "named", .blocks = {recomputed}};
  run.steps = 3;
  static EveryNth chosen(3);
  for (const auto& form : gathering_forms()) {
    if (!chosen()) continue;
    run.strategy = form.strategy;
    run.options = form.options;
    run.make = nullptr;
    auto plain = train_tiny(run);
    run.make = make_overlapped;
    auto ahead = train_tiny(run);
    INFO(form.strategy << " " << form.options.dump() << ", " << run.family << ", accumulation " << run.accumulation
                       << ", recomputed " << recomputed);
    CHECK(ahead.losses == plain.losses);
    CHECK(ahead.state == plain.state);
  }
}

TEST_CASE("memory of a prefetched unit is predicted", "[memory][overlap]") {
  at::set_num_threads(1);
  TinyRun run;
  run.vocab = 503;
  run.loss_chunk_tokens = 128;
  run.dim = 128;
  run.n_layers = 4;
  run.world_size = 2;
  run.tied = GENERATE(false, true);
  run.checkpointing.mode = GENERATE(as<std::string>(), "none", "all");
  ModelSpec spec = tiny_spec(run);
  for (const auto& form : gathering_forms()) {
    run.strategy = form.strategy;
    run.options = form.options;
    run.make = [&](StrategySetup setup) {
      ParallelPlan plan = overlapping_plan(form.strategy, setup.job);
      return make_executor(std::move(setup), std::move(plan));
    };
    Job job = tiny_job(run, spec);
    auto claim = program_memory(job, overlapping_plan(form.strategy, job));
    auto measured = measure_memory(run);
    INFO(form.strategy << " " << form.options.dump() << ", tied " << run.tied << ", recompute "
                       << run.checkpointing.mode);
    CHECK(measured.between_steps == claim.between_steps);
    CHECK(static_cast<double>(claim.total()) > 0.99 * static_cast<double>(measured.peak));
    CHECK(static_cast<double>(claim.total()) < 1.06 * static_cast<double>(measured.peak));
  }
}

TEST_CASE("memory of overlapped reductions is predicted, at most 3 % too low and 6 % too high", "[memory][overlap]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.vocab = 503;
  run.loss_chunk_tokens = 128;
  run.dim = 128;
  run.n_layers = 2;
  run.world_size = 4;
  run.accumulation = GENERATE(1, 3);
  ModelSpec spec = tiny_spec(run);
  for (const auto& form : overlap_forms()) {
    run.strategy = form.strategy;
    run.options = form.options;
    run.make = [&](StrategySetup setup) {
      ParallelPlan plan = overlapping_plan(form.strategy, setup.job);
      return make_executor(std::move(setup), std::move(plan));
    };
    Job job = tiny_job(run, spec);
    auto claim = program_memory(job, overlapping_plan(form.strategy, job));
    auto measured = measure_memory(run);
    INFO(form.strategy << " " << form.options.dump() << ", " << run.family << ", accumulation " << run.accumulation);
    CHECK(measured.between_steps == claim.between_steps);
    CHECK(static_cast<double>(claim.total()) > 0.97 * static_cast<double>(measured.peak));
    CHECK(static_cast<double>(claim.total()) < 1.06 * static_cast<double>(measured.peak));
  }
}
