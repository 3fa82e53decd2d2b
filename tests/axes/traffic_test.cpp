// The traffic of meshes is as predicted, by kind, group, call and byte, on each rank.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "meshed_runs.hpp"
#include "tests/support/recorded_traffic.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

void check_traffic(TinyRun run) {
  run.steps = 2;
  run.global_batch = run.world_size / run.tensor / run.pipeline * run.accumulation;
  const auto ranks = record_traffic(run);
  for (int rank = 0; rank < run.world_size; ++rank) {
    INFO("rank " << rank);
    const auto claimed = claimed_traffic(run, {}, rank);
    for (const auto& step : ranks[static_cast<size_t>(rank)]) CHECK(step.strategy == claimed);
  }
}

}  // namespace

TEST_CASE("the traffic of pipelines is as predicted", "[pipeline][recording]") {
  at::set_num_threads(1);
  TinyRun run;
  run.n_layers = 4;
  run.tied = GENERATE(true, false);
  run.accumulation = GENERATE(1, 3);
  run.pipeline = GENERATE(2, 3);
  run.virtual_stages = GENERATE(1, 2);
  run.schedule = run.virtual_stages > 1 ? PipelineSchedule::interleaved_1f1b : PipelineSchedule::one_f_one_b;
  struct Line {
    std::string strategy;
    int data;
  };
  for (const auto& line : {Line{"single", 1}, Line{"ddp", 2}, Line{"fsdp", 2}}) {
    run.strategy = line.strategy;
    run.world_size = run.pipeline * line.data;
    INFO("tied " << run.tied << ", micro-batches " << run.accumulation << ", " << run.pipeline << " ranks x "
                 << run.virtual_stages << " stages, " << line.strategy);
    check_traffic(run);
  }
}
