// Pairs of trainings on meshes that have the same bits, also if ranks are delayed.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <random>
#include <thread>

#include "meshed_runs.hpp"
#include "strategies/executor/executor.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

TinyRun run_in_float32() {
  at::set_num_threads(1);
  TinyRun run;
  run.n_layers = 4;
  run.steps = 3;
  return run;
}

/// Each block's forward begins up to a millisecond late on each rank.
void delay(TinyRun& run) {
  run.make = [name = run.strategy](StrategySetup setup) {
    auto plan = find_strategy(name)->entry->plan(setup.job);
    auto random = std::make_shared<std::mt19937>(static_cast<unsigned>(setup.world.rank));
    ShardEvents events;
    events.forward_begins = [random](size_t) {
      std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 1000));
    };
    return make_executor(std::move(setup), std::move(plan), std::move(events));
  };
}

}  // namespace

TEST_CASE("a pipeline has the bits of its data ranks alone, under every schedule", "[pipeline][bits]") {
  auto run = run_in_float32();
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.accumulation = GENERATE(1, 5);
  // The parts of a tied gradient are added once a step, and not in each micro-batch.
  run.tied = run.accumulation == 1;
  struct Line {
    std::string strategy;
    int data;
  };
  for (const auto& line : {Line{"ddp", 2}, Line{"fsdp", 2}, Line{"zero", 2}}) {
    run.strategy = line.strategy;
    run.world_size = line.data;
    run.options = nlohmann::json::object();
    if (line.strategy == "fsdp") run.options["reduce_every_micro_batch"] = false;
    if (line.strategy == "zero") run.options["stage"] = 1;
    const auto alone = train_tiny(run);
    struct Shape {
      PipelineSchedule schedule;
      int ranks, virtual_stages;
    };
    for (const auto& [schedule, ranks, virtual_stages] :
         {Shape{PipelineSchedule::gpipe, 2, 1}, Shape{PipelineSchedule::one_f_one_b, 2, 1},
          Shape{PipelineSchedule::one_f_one_b, 4, 1}, Shape{PipelineSchedule::interleaved_1f1b, 2, 2},
          Shape{PipelineSchedule::zb_h1, 2, 1}, Shape{PipelineSchedule::zb_h1, 4, 1}}) {
      auto piped = run;
      piped.schedule = schedule;
      piped.pipeline = ranks;
      piped.virtual_stages = virtual_stages;
      piped.world_size = ranks * line.data;
      INFO(run.family << ", micro-batches " << run.accumulation << ", " << line.strategy << ", " << name_of(schedule)
                      << " on " << ranks << " ranks");
      check_equal(train_tiny(piped), alone);
    }
  }
}

TEST_CASE("with a tensor axis, fsdp and zero have the bits of ddp", "[tensor][bits]") {
  auto run = run_in_float32();
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.sequence_parallel = GENERATE(true, false);
  run.accumulation = GENERATE(1, 2);
  run.tensor = 2;
  run.world_size = 4;
  run.strategy = "ddp";
  const auto ddp = train_tiny(run);
  run.strategy = "fsdp";
  run.options = {{"sharding_strategy", "FULL_SHARD"}, {"reduce_every_micro_batch", false}};
  check_equal(train_tiny(run), ddp);
  run.strategy = "zero";
  run.options = {{"stage", 1}};
  check_equal(train_tiny(run), ddp);
}

TEST_CASE("delays of ranks change no bit of a pipeline", "[pipeline][bits]") {
  auto run = run_in_float32();
  run.pipeline = 2;
  run.tensor = GENERATE(1, 2);
  run.virtual_stages = GENERATE(1, 2);
  run.schedule = run.virtual_stages > 1 ? PipelineSchedule::interleaved_1f1b
                                        : GENERATE(PipelineSchedule::one_f_one_b, PipelineSchedule::zb_h1);
  run.strategy = "fsdp";
  run.accumulation = 6;
  run.world_size = run.pipeline * run.tensor * 2;
  run.global_batch = 24;
  const auto prompt = train_tiny(run);
  for (int i = 0; i < 3; ++i) {
    auto late = run;
    delay(late);
    check_equal_with_norms(train_tiny(late), prompt);
  }
}
