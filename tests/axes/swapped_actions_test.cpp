// Two swapped actions of a rank, executed: the training stays right, or it ends with an error that says what both ranks were doing.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "meshed_runs.hpp"
#include "strategies/executor/executor.hpp"
#include "strategies/pipeline/simulation.hpp"
#include "strategies/pipeline/transfers.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

TinyRun pipelined(PipelineSchedule schedule) {
  auto run = run_in_float64();
  run.n_layers = 2;
  run.tied = false;
  run.pipeline = run.world_size = 2;
  run.schedule = schedule;
  run.accumulation = 3;
  run.global_batch = 6;
  run.steps = 1;
  return run;
}

PipelineShape shape_of(const TinyRun& run) {
  return {.schedule = run.schedule, .ranks = run.pipeline, .micro_batches = static_cast<int>(run.accumulation)};
}

/// The instructions of each action. An action is a transfer, or all instructions of one kind for one micro-batch.
std::vector<Program> by_action(const Program& program) {
  std::vector<Program> actions;
  const Instruction* last = nullptr;
  for (const auto& instruction : program) {
    if (instruction.block == Instruction::none) break;  // the reductions and the norm follow
    const bool same = last && last->op == instruction.op && last->micro_batch == instruction.micro_batch;
    if (!same) actions.emplace_back();
    actions.back().push_back(instruction);
    last = &instruction;
  }
  return actions;
}

/// Executes the schedule with two actions of a rank swapped.
TinyResult train_swapped(TinyRun run, int rank, size_t a, size_t b) {
  run.make = [=, name = run.strategy](StrategySetup setup) {
    auto plan = find_strategy(name)->entry->plan(setup.job);
    ShardEvents events;
    if (setup.world.rank == rank)
      events.programmed = [=](Program& program) {
        auto actions = by_action(program);
        std::swap(actions.at(a), actions.at(b));
        size_t at = 0;
        for (const auto& action : actions) at = std::ranges::copy(action, program.begin() + at).out - program.begin();
      };
    return make_executor(std::move(setup), std::move(plan), std::move(events));
  };
  return train_tiny(run, [](int world_size, const std::function<void(World&)>& body) {
    run_ranks(world_size, body, std::chrono::milliseconds(700));
  });
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the actions of the program of a stage are those of its schedule", "[pipeline]") {
  for (const auto schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::zb_h1}) {
    const auto run = pipelined(schedule);
    const auto order = with_transfers(shape_of(run), training_order(shape_of(run)));
    for (int rank = 0; rank < 2; ++rank) {
      const auto spec = tiny_spec_of_rank(run, rank);
      const Job job = tiny_job(run, spec);
      const auto actions =
          by_action(step_program(spec, find_strategy("single")->entry->plan(job), job.recompute, run.accumulation));
      REQUIRE(actions.size() == order[static_cast<size_t>(rank)].size());
      for (size_t i = 0; i < actions.size(); ++i)
        CHECK(is_transfer(actions[i][0].op) == is_transfer(order[static_cast<size_t>(rank)][i].kind));
    }
  }
}

TEST_CASE("two swapped actions of a rank are reported with what both ranks do, unless the result stays right",
          "[pipeline]") {
  const auto run = pipelined(GENERATE(PipelineSchedule::one_f_one_b, PipelineSchedule::zb_h1));
  const auto shape = shape_of(run);
  const auto order = with_transfers(shape, training_order(shape));
  const auto expected = train_tiny(run);
  int right = 0, deadlocks = 0, others = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const auto& here = order[static_cast<size_t>(rank)];
    for (size_t a = 0; a < here.size(); ++a)
      for (size_t b = a + 1; b < here.size(); ++b) {
        if (b > a + 1 && !(is_transfer(here[a].kind) && is_transfer(here[b].kind))) continue;
        auto changed = order;
        std::swap(changed[static_cast<size_t>(rank)][a], changed[static_cast<size_t>(rank)][b]);
        // These messages are small: a channel over shared memory holds all of them.
        const auto problems = simulate(shape, changed, {.buffer = unlimited_buffer}).problems;
        INFO("rank " << rank << ": " << to_text(changed[static_cast<size_t>(rank)], shape));
        if (problems.empty()) {
          ++right;
          check_same_training(train_swapped(run, rank, a, b), expected);
          continue;
        }
        const bool deadlock = problems[0].find(" waits to ") != std::string::npos &&
                              problems[0].find("next message") == std::string::npos;
        const bool other = problems[0].find("next message") != std::string::npos;
        if (!deadlock && !other) continue;  // an action before what it needs
        INFO(problems[0]);
        const auto error = error_of([&] { train_swapped(run, rank, a, b); });
        CHECK_THAT(error, ContainsSubstring("rank 0 ") && ContainsSubstring("rank 1 "));
        CHECK_THAT(error, ContainsSubstring(deadlock ? " and waits in transfer #" : "ranks diverged: "));
        ++(deadlock ? deadlocks : others);
      }
  }
  CHECK(right > 5);
  CHECK(deadlocks == 3);
  CHECK(others > 3);
}
