// Pipelines on simulated devices: under every schedule the bits of one rank, under every policy, without races.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/device/device_training.hpp"
#include "tests/support/equal_training.hpp"

using namespace runner;
using namespace runner::simulated;

namespace {

using Texts = std::vector<std::string>;

TinyResult trained(const TinyRun& run, const Policy& policy) {
  Simulation simulation(policy);
  auto result = train_on_devices(run);
  CHECK(take_reports() == Texts());
  CHECK(operator_counts().waited.empty());
  return result;
}

/// The pipeline under all policies, against the same data ranks without it.
void check_pipeline(const TinyRun& run, int ranks, int virtual_stages, PipelineSchedule schedule) {
  auto alone = run;
  alone.strategy = run.world_size > 1 ? run.strategy : "single";
  const auto expected = trained(alone, {Order::eager});
  CHECK(std::isfinite(expected.losses.back()));
  auto piped = run;
  piped.pipeline = ranks;
  piped.world_size = ranks * run.world_size;
  piped.virtual_stages = virtual_stages;
  piped.schedule = schedule;
  for (const auto& [name, policy] : extreme_policies()) {
    INFO(name);
    const auto result = trained(piped, policy);
    CHECK(result.losses == expected.losses);
    CHECK(result.state == expected.state);
  }
}

/// The parts of a tied gradient are added once a step, and not in each micro-batch, so matrices are not tied.
TinyRun piped_run(const std::string& family) {
  at::set_num_threads(1);
  auto run = device_run("single", 1);
  run.family = family;
  run.n_layers = 4;
  run.tied = false;
  run.accumulation = 4;
  run.global_batch = 16;
  return run;
}

}  // namespace

TEST_CASE("a pipeline has the bits of one rank on devices, under every schedule and policy, without races",
          "[device][pipeline]") {
  auto run = piped_run(GENERATE(as<std::string>(), "gpt", "llama"));
  run.recompute = GENERATE(false, true);
  struct Shape {
    PipelineSchedule schedule;
    int ranks, virtual_stages;
  };
  for (const auto& [schedule, ranks, virtual_stages] :
       {Shape{PipelineSchedule::gpipe, 2, 1}, Shape{PipelineSchedule::one_f_one_b, 2, 1},
        Shape{PipelineSchedule::interleaved_1f1b, 2, 2}, Shape{PipelineSchedule::zb_h1, 2, 1},
        Shape{PipelineSchedule::zb_h1, 4, 1}}) {
    INFO(run.family << ", recompute " << run.recompute << ", " << name_of(schedule) << " on " << ranks << " ranks");
    check_pipeline(run, ranks, virtual_stages, schedule);
  }
}

TEST_CASE("a pipeline of sharded stages has the bits of its data ranks on devices, without races",
          "[device][pipeline]") {
  auto run = piped_run("llama");
  run.strategy = "fsdp";
  run.world_size = 2;
  run.options = {{"reduce_every_micro_batch", false}};
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  for (const auto schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::zb_h1}) {
    INFO(run.precision << ", " << name_of(schedule));
    check_pipeline(run, 2, 1, schedule);
  }
}
