// The traffic of meshes is as predicted, by kind, group, call and byte, on each rank.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "meshed_runs.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/recorded_traffic.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

void check_traffic(TinyRun run) {
  run.steps = 2;
  run.global_batch = tiny_mesh(run).data_ranks() * run.accumulation;
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
  run.schedule = run.virtual_stages > 1 ? PipelineSchedule::interleaved_1f1b
                                        : GENERATE(PipelineSchedule::one_f_one_b, PipelineSchedule::zb_h1);
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

TEST_CASE("the traffic of tensor axes is as predicted", "[tensor][recording]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.tied = GENERATE(true, false);
  run.accumulation = GENERATE(1, 3);
  run.sequence_parallel = GENERATE(true, false);
  run.recompute = GENERATE(true, false);
  struct Line {
    std::string strategy;
    int pipeline, data, tensor;
    std::string precision = "32-true";
    PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  };
  static EveryNth chosen(3);
  for (const auto& line : {Line{"single", 1, 1, 2}, Line{"ddp", 1, 2, 2}, Line{"fsdp", 1, 2, 2, "bf16-mixed"},
                           Line{"fsdp", 1, 3, 4}, Line{"zero", 1, 2, 2, "bf16-true"}, Line{"single", 2, 1, 2},
                           Line{"fsdp", 2, 2, 2}, Line{"fsdp", 2, 2, 2, "32-true", PipelineSchedule::zb_h1}}) {
    if (!chosen()) continue;
    run.schedule = line.schedule;
    run.strategy = line.strategy;
    run.pipeline = line.pipeline;
    run.tensor = line.tensor;
    run.precision = line.precision;
    run.world_size = line.pipeline * line.data * line.tensor;
    INFO(run.family << ", tied " << run.tied << ", micro-batches " << run.accumulation << ", sequence parallel "
                    << run.sequence_parallel << ", recompute " << run.recompute << ", " << line.strategy << ", "
                    << line.pipeline << " x " << line.data << " x " << line.tensor << ", " << line.precision);
    check_traffic(run);
  }
}

TEST_CASE("the traffic of context axes is as predicted", "[context][recording]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.accumulation = GENERATE(1, 3);
  run.recompute = GENERATE(true, false);
  run.packed = GENERATE(false, true);
  run.context_form = GENERATE(ContextForm::gather, ContextForm::ring, ContextForm::ulysses);
  struct Line {
    std::string precision;
    MeshLine mesh;
  };
  static EveryNth chosen(3);
  for (const auto& line : {Line{"32-true", {1, 1, 2, 1, "single"}}, Line{"bf16-mixed", {1, 1, 4, 1, "fsdp"}},
                           Line{"bf16-true", {1, 2, 2, 1, "zero"}}, Line{"32-true", {1, 2, 2, 2, "fsdp"}},
                           Line{"32-true", {2, 1, 2, 1, "single"}}, Line{"32-true", {2, 1, 2, 2, "ddp"}}}) {
    if (!chosen()) continue;
    put_on_mesh(run, line.mesh);
    run.precision = line.precision;
    INFO(run.family << ", " << to_text(tiny_mesh(run)) << ", " << name_of(run.context_form) << ", micro-batches "
                    << run.accumulation << ", recompute " << run.recompute << ", packed " << run.packed << ", "
                    << run.strategy << ", " << run.precision);
    check_traffic(run);
  }
}
