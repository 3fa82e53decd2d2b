// What XLA says about the memory of a step, before anything is trained.
#include <catch2/catch_test_macros.hpp>

#include "strategies/program/parallel_plan.hpp"
#include "strategies/xla/account.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

namespace {

StepAccount account_of(const TinyRun& run) {
  const auto spec = tiny_spec(run);
  const auto model = build_model(tiny_model(run), spec);
  const auto job = tiny_job(run, spec);
  const auto plan = find_strategy(run.strategy)->entry->plan(job);
  return account_of_step(*model, job, plan, run.optimizer, run.clip_norm, run.clip_value);
}

/// Four rows for each device and micro-batch.
TinyRun run_on(const std::string& strategy, int devices, int64_t accumulation = 1) {
  TinyRun run;
  run.strategy = strategy;
  run.world_size = devices;
  run.n_layers = 1;
  run.accumulation = accumulation;
  run.global_batch = 4 * devices * accumulation;
  return run;
}

int64_t parameters_of(const TinyRun& run) { return tiny_spec(run).parameter_count(); }

/// Inputs and targets of a micro-batch.
int64_t field_bytes(const TinyRun& run) { return 4 * run.seq_len * 2 * 8; }

constexpr int64_t numbers_each = 1024;  ///< bytes: more than those of the scalars and of the table of results

}  // namespace

TEST_CASE("parameters and states of xla_fsdp are one part in N on each device, and updated in place",
          "[xla][account]") {
  for (const int devices : {1, 2, 4}) {
    INFO(devices << " devices");
    const auto run = run_on("xla_fsdp", devices);
    const auto account = account_of(run);
    CHECK(account.program == "step");
    const int64_t arrays = 3 * 4 * parameters_of(run) / devices, rest = account.bytes - account.temporary - arrays;
    CHECK(rest >= field_bytes(run));
    CHECK(rest < field_bytes(run) + numbers_each);
  }
}

TEST_CASE("a replica has all parameters and states on each device", "[xla][account]") {
  const auto run = run_on("xla", 2);
  const auto account = account_of(run);
  const int64_t rest = account.bytes - account.temporary - 3 * 4 * parameters_of(run);
  CHECK(rest >= field_bytes(run));
  CHECK(rest < field_bytes(run) + numbers_each);
}

TEST_CASE("with micro-batches, the summed gradients are counted, and the state that a micro-batch does not read",
          "[xla][account]") {
  const auto run = run_on("single_xla", 1, 3);
  const auto account = account_of(run);
  const int64_t rest = account.bytes - account.temporary - 4 * 4 * parameters_of(run);
  INFO(account.program);
  CHECK(rest >= field_bytes(run));
  CHECK(rest < field_bytes(run) + numbers_each);
}

TEST_CASE("the plug-in for CPUs keeps what is to be gathered or computed again, as a note says", "[xla][account]") {
  auto run = run_on("xla_fsdp", 2);
  run.n_layers = 3;
  const auto plain = account_of(run);
  run.recompute = true;
  const auto recomputed = account_of(run);
  CHECK(static_cast<double>(recomputed.temporary) > 0.9 * static_cast<double>(plain.temporary));
  run.recompute = false;
  run.options = {{"sharding_strategy", "SHARD_GRAD_OP"}};
  const auto kept = account_of(run);
  CHECK(static_cast<double>(plain.temporary) > 0.9 * static_cast<double>(kept.temporary));
}

}  // namespace runner::testing
