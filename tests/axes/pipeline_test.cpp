// Pipelines: ranks with different blocks train as one rank does, under every schedule, and with the other axes.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "meshed_runs.hpp"
#include "tests/support/every_nth.hpp"

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
                           Line{4, 2, PipelineSchedule::interleaved_1f1b}, Line{2, 1, PipelineSchedule::zb_h1},
                           Line{4, 1, PipelineSchedule::zb_h1}}) {
    auto piped = run;
    piped.pipeline = piped.world_size = line.ranks;
    piped.virtual_stages = line.virtual_stages;
    piped.schedule = line.schedule;
    INFO(run.family << ", tied " << run.tied << ", micro-batches " << run.accumulation << ", " << name_of(line.schedule)
                    << " on " << line.ranks << " ranks");
    check_same_training(train_tiny(piped), single);
  }
}

TEST_CASE("fp64: pipelines with the other axes train as one rank", "[pipeline]") {
  auto run = run_in_float64();
  run.n_layers = 4;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.tied = GENERATE(true, false);
  run.recompute = GENERATE(false, true);
  run.dropout = GENERATE(0.0, 0.1);
  run.accumulation = 2;
  run.short_last = 5;
  const auto single = train_tiny(run);
  struct Line {
    int pipeline, data, tensor;
    std::string strategy;
    nlohmann::json options;
  };
  static EveryNth chosen(3);
  for (const auto& line : {Line{2, 2, 1, "ddp", {}}, Line{2, 1, 2, "single", {}}, Line{2, 2, 2, "ddp", {}},
                           Line{2, 2, 1, "fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
                           Line{2, 2, 2, "fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
                           Line{2, 2, 1, "zero", {{"stage", 1}}}, Line{3, 2, 1, "zero", {{"stage", 1}}},
                           Line{2, 4, 1, "fsdp", {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", 2}}}})
    for (const int virtual_stages : {1, 2}) {
      if (!chosen()) continue;
      auto piped = run;
      piped.pipeline = line.pipeline;
      piped.tensor = line.tensor;
      piped.world_size = line.pipeline * line.data * line.tensor;
      piped.virtual_stages = virtual_stages;
      piped.schedule = virtual_stages > 1 ? PipelineSchedule::interleaved_1f1b : PipelineSchedule::one_f_one_b;
      piped.strategy = line.strategy;
      if (!line.options.is_null()) piped.options = line.options;
      INFO(run.family << ", tied " << run.tied << ", recompute " << run.recompute << ", dropout " << run.dropout
                      << ", pipeline " << line.pipeline << " x data " << line.data << " x tensor " << line.tensor
                      << ", virtual stages " << virtual_stages << ", " << line.strategy << " " << piped.options.dump());
      check_same_training(train_tiny(piped), single);
    }
}
