// AdaScale in trainings: its gain against gradients of single ranks, and equal under every strategy.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/resumed_training.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

struct ScaledForm {
  std::string strategy;
  json options = json::object();
};
std::vector<ScaledForm> scaled_forms() {
  return {{"ddp"},
          {"dp"},
          {"fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
          {"fsdp", {{"sharding_strategy", "NO_SHARD"}}},
          {"zero", {{"stage", 1}}},
          {"zero", {{"stage", 2}}},
          {"zero", {{"stage", 3}}}};
}

TinyRun scaled_run(const ScaledForm& form, int ranks) {
  TinyRun run;
  run.strategy = form.strategy;
  run.options = form.options;
  run.world_size = ranks;
  run.optimizer.adascale = AdaScaleOptions();
  return run;
}

std::vector<StepResult> scaled_steps(const TinyRun& run) {
  std::vector<StepResult> results;
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      for (int64_t step = 0; step < run.steps; ++step) {
        const auto result = strategy.step(tiny_input(run, world.rank, step));
        if (world.rank == 0) results.push_back(result);
      }
    });
  });
  return results;
}

/// The norm of the mean gradient over the rows that `rank` has in the first step of `run`.
double norm_of_rank(const TinyRun& run, int rank) {
  TinyRun alone = run;
  alone.world_size = 1;
  alone.strategy = "single";
  alone.options = json::object();
  alone.optimizer.adascale.reset();
  double norm = 0;
  run_ranks(1, [&](World& world) {
    with_strategy(alone, world, [&](Strategy& strategy) {
      StepInput input = tiny_input(run, rank, 0);
      input.weight = input.rank_weight;
      norm = strategy.step(input).grad_norm;
    });
  });
  return norm;
}

}  // namespace

TEST_CASE("the gain is that of the gradients of the ranks, and the rate of the update is multiplied by it",
          "[adascale]") {
  at::set_num_threads(1);
  for (const int ranks : {2, 4}) {
    double squares = 0;
    for (int rank = 0; rank < ranks; ++rank) squares += std::pow(norm_of_rank(scaled_run({"ddp"}, ranks), rank), 2);
    for (const auto& form : scaled_forms()) {
      INFO(form.strategy << " " << form.options.dump() << ", " << ranks << " ranks");
      const auto result = scaled_steps(scaled_run(form, ranks)).front();
      const double expected = AdaScale({}).gain(squares, std::pow(result.grad_norm, 2), ranks);
      CHECK_THAT(result.gain, WithinRel(expected, 1e-4));
      CHECK(result.gain > 1);
      CHECK(result.lr_factor == result.gain);
    }
  }
}

TEST_CASE("an update with a gain is one with a larger rate", "[adascale]") {
  at::set_num_threads(1);
  TinyRun run = scaled_run({"ddp"}, 2);
  run.steps = 1;
  const double gain = scaled_steps(run).front().gain;
  const auto scaled = train_tiny(run);
  run.optimizer.adascale.reset();
  run.optimizer.lr *= gain;
  CHECK(train_tiny(run).state == scaled.state);
}

TEST_CASE("with a scale of 1 there is no gain: all bits are those without AdaScale", "[adascale][parity]") {
  at::set_num_threads(1);
  for (const auto& form : scaled_forms()) {
    INFO(form.strategy << " " << form.options.dump());
    TinyRun run = scaled_run(form, 2);
    run.optimizer.adascale = AdaScaleOptions{.scale = 1};
    const auto with = train_tiny(run);
    run.optimizer.adascale.reset();
    const auto without = train_tiny(run);
    CHECK(with.losses == without.losses);
    CHECK(with.state == without.state);
  }
}

TEST_CASE("gradients that are reduced after each micro-batch count one by one", "[adascale]") {
  at::set_num_threads(1);
  TinyRun many = scaled_run({"ddp"}, 4), few = scaled_run({"fsdp", {{"sharding_strategy", "FULL_SHARD"}}}, 2);
  few.accumulation = 2;
  many.steps = few.steps = 1;
  CHECK_THAT(scaled_steps(few).front().gain, WithinRel(scaled_steps(many).front().gain, 1e-4));
}

TEST_CASE("a training with AdaScale continues with the same bits after a resume", "[adascale][resume]") {
  at::set_num_threads(1);
  for (const auto& form : scaled_forms()) {
    INFO(form.strategy << " " << form.options.dump());
    const TinyRun run = scaled_run(form, 2);
    const auto through = train_tiny(run), resumed = train_resumed(run, run, 3);
    CHECK(resumed.losses == std::vector<double>(through.losses.begin() + 3, through.losses.end()));
    CHECK(resumed.state == through.state);
  }
}

TEST_CASE("AdaScale needs plain sums of complete gradients of several ranks", "[adascale]") {
  const auto refusal = [](const std::string& strategy, const json& options, int ranks, int tensor = 1) {
    TinyRun run = scaled_run({strategy, options}, ranks);
    run.tensor = tensor;
    const auto spec = tiny_spec(run);
    Job job = tiny_job(run, spec);
    job.adascale = true;
    return find_strategy(strategy)->entry->refuse(job).value_or("");
  };
  CHECK(refusal("ddp", json::object(), 2) == "");
  CHECK_THAT(refusal("ddp", json::object(), 1), ContainsSubstring("this run has one data rank"));
  CHECK_THAT(refusal("ddp", {{"ddp_comm_hook", "powerSGD_hook"}}, 2),
             ContainsSubstring("`powerSGD_hook` replaces that sum"));
  CHECK_THAT(refusal("horovod", {{"op", "adasum"}}, 2), ContainsSubstring("`adasum` replaces that sum"));
  CHECK_THAT(refusal("fsdp", json::object(), 4, 2), ContainsSubstring("the axis `tensor`"));
}
