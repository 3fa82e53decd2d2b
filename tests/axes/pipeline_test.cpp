// Pipelines: ranks with different blocks train as one rank does, under every schedule, and with the other axes.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "meshed_runs.hpp"

using namespace runner;
using namespace runner::testing;

TEST_CASE("fp64: pipelines train as one rank", "[pipeline]") {
  auto run = run_in_float64();
  run.n_layers = 4;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.tied = GENERATE(true, false);
  run.accumulation = GENERATE(1, 4);
  run.clip_norm = 0.5;
  const auto single = train_tiny(run);
  struct Line {
    int ranks, virtual_stages;
    PipelineSchedule schedule;
  };
  for (const auto& line : {Line{2, 1, PipelineSchedule::gpipe}, Line{2, 1, PipelineSchedule::one_f_one_b},
                           Line{2, 2, PipelineSchedule::interleaved_1f1b}, Line{4, 1, PipelineSchedule::one_f_one_b},
                           Line{4, 2, PipelineSchedule::interleaved_1f1b}}) {
    auto piped = run;
    piped.pipeline = piped.world_size = line.ranks;
    piped.virtual_stages = line.virtual_stages;
    piped.schedule = line.schedule;
    INFO(run.family << ", tied " << run.tied << ", micro-batches " << run.accumulation << ", " << name_of(line.schedule)
                    << " on " << line.ranks << " ranks");
    check_same_training(train_tiny(piped), single);
  }
}
