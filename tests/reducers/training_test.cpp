// Trainings with the built-in comm hooks: parity where they are exact, convergence where they are not, and bytes on the wire and in
// memory.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <set>

#include "tests/support/measured_memory.hpp"
#include "tests/support/recorded_traffic.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

TinyRun with_hook(const std::string& hook, const json& hook_options = json::object(), json options = json::object()) {
  TinyRun run;
  run.strategy = "ddp";
  options["ddp_comm_hook"] = hook;
  options["ddp_comm_hook_options"] = hook_options;
  options["bucket_cap_mb"] = 0.02;
  run.options = options;
  return run;
}

const json power_options = {{"start_powerSGD_iter", 0}, {"matrix_approximation_rank", 2}};

/// Post-local SGD in which ranks train alone from the first step.
TinyRun alone(int64_t period) {
  return with_hook("post_localSGD_hook", {{"start_localSGD_iter", 0}, {"post_local_gradient_allreduce", false}},
                   {{"model_averaging_period", period}});
}

std::vector<TinyRun> all_hooks() {
  return {with_hook("quantization_pertensor_hook"),
          with_hook("quantization_perchannel_hook"),
          with_hook("powerSGD_hook", power_options),
          with_hook("powerSGD_hook", power_options, {{"ddp_comm_wrapper", "fp16_compress_wrapper"}}),
          with_hook("batched_powerSGD_hook", power_options),
          alone(2)};
}

std::string label(const TinyRun& run) { return run.options.dump(); }

TinyRun plain_ddp(TinyRun run) {
  run.options = {{"bucket_cap_mb", 0.02}};
  return run;
}

}  // namespace

TEST_CASE("before compression or local steps begin, comm hooks equal ddp bit for bit", "[parity]") {
  at::set_num_threads(1);
  auto run = GENERATE(with_hook("powerSGD_hook"), with_hook("batched_powerSGD_hook"),
                      with_hook("post_localSGD_hook", json::object(), {{"model_averaging_period", 2}}));
  for (const int ranks : {1, 2, 4}) {
    run.world_size = ranks;
    INFO(label(run) << ", " << ranks << " ranks");
    const auto result = train_tiny(run), expected = train_tiny(plain_ddp(run));
    CHECK(result.losses == expected.losses);
    for (const auto& [name, values] : expected.state) CHECK(result.state.at(name) == values);
  }
}

TEST_CASE("losses with compressed gradients are near ddp's, with any number of ranks and uneven rows", "[parity]") {
  at::set_num_threads(1);
  auto run = GENERATE(from_range(all_hooks()));
  run.steps = 8;
  run.short_last = 7;
  const auto expected = train_tiny(plain_ddp(run));
  const auto hook = run.options["ddp_comm_hook"].get<std::string>();
  std::optional<double> of_one_rank;
  for (const int ranks : {1, 2, 4}) {
    run.world_size = ranks;
    INFO(label(run) << ", " << ranks << " ranks");
    const auto result = train_tiny(run);
    CHECK_THAT(result.losses[0], WithinRel(expected.losses[0], 1e-6));
    // A gradient that is too large or too small by the number of ranks would show in the norm of the first step.
    if (hook.starts_with("quantization")) {
      CHECK_THAT(result.norms[0], WithinRel(expected.norms[0], 0.02));
      CHECK_THAT(result.losses.back(), WithinRel(expected.losses.back(), 0.02));
    }
    // The factors are those of the sum, so they hardly depend on the number of ranks.
    if (!of_one_rank) of_one_rank = result.losses.back();
    if (hook.find("powerSGD") != std::string::npos) CHECK_THAT(result.losses.back(), WithinRel(*of_one_rank, 0.01));
  }
}

TEST_CASE("with compressed gradients or local steps, a batch that is repeated is learned") {
  at::set_num_threads(1);
  auto run = GENERATE(from_range(all_hooks()));
  run.world_size = 2;
  INFO(label(run));
  std::vector<double> losses;
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      for (int64_t step = 0; step < 60; ++step) {
        const auto outcome = strategy.step(tiny_input(run, world.rank, 0));
        if (world.rank == 0) losses.push_back(outcome.loss);
      }
    });
  });
  CHECK(losses.back() < 0.7 * losses.front());
}

TEST_CASE("with SGD and an average after each step, local steps equal ddp up to rounding", "[parity]") {
  at::set_num_threads(1);
  auto run = alone(1);
  run.optimizer.kind = OptimizerConfig::Kind::sgd;
  run.world_size = GENERATE(2, 3, 4);
  const auto result = train_tiny(run), expected = train_tiny(plain_ddp(run));
  REQUIRE(result.losses.size() == expected.losses.size());
  // Between steps rank 0 has the average, and so have all others.
  for (size_t i = 0; i < result.losses.size(); ++i) CHECK_THAT(result.losses[i], WithinRel(expected.losses[i], 1e-5));
}

TEST_CASE("gradients of subgroups and averages of parameters go over the groups that the options name", "[recording]") {
  at::set_num_threads(1);
  TinyRun run =
      with_hook("post_localSGD_hook",
                {{"start_localSGD_iter", 2}, {"subgroup_size", 2}, {"period_group_size_dict", {{"2", 2}, {"4", 4}}}});
  run.world_size = 4;
  run.steps = 7;
  const auto steps = record_traffic(run).front();
  // The sizes of the groups over which parameters or gradients are summed, in each step.
  std::vector<std::set<int>> sizes;
  for (const auto& step : steps) {
    sizes.emplace_back();
    for (const auto& call : step.strategy) sizes.back().insert(call.ranks);
  }
  // Updates 2 and 6 average over 2 ranks, and update 4 over 4. Gradients of later steps are summed over 2.
  const std::vector<std::set<int>> expected = {{4}, {4}, {2}, {2}, {2, 4}, {2}, {2}};
  CHECK(sizes == expected);
  const auto calls_in = [&](size_t step) {
    int64_t calls = 0;
    for (const auto& call : steps[step].strategy) calls += call.ranks == 2 ? call.calls : 0;
    return calls;
  };
  CHECK(calls_in(2) == calls_in(6));
  CHECK(calls_in(2) == calls_in(3) * 2 - 1);  // without the rank's part of the batch
}

TEST_CASE("the traffic of comm hooks is as predicted", "[recording]") {
  at::set_num_threads(1);
  auto hooks = all_hooks();
  hooks.back() = alone(1);
  hooks.push_back(with_hook("noop_hook"));
  for (auto run : hooks)
    for (const int ranks : {1, 2, 4}) {
      run.world_size = ranks;
      run.steps = 3;
      run.global_batch = ranks;
      INFO(label(run) << ", " << ranks << " ranks");
      const auto claimed = claimed_traffic(run);
      for (const auto& steps : record_traffic(run))
        for (const auto& step : steps) CHECK(step.strategy == claimed);
    }
}

TEST_CASE("without communication each rank trains its own rows, and clips by its own norm") {
  at::set_num_threads(1);
  TinyRun run = with_hook("noop_hook");
  run.world_size = 2;
  if (GENERATE(false, true)) run.clip_norm = 0.5;
  run.optimizer = {.kind = OptimizerKind::sgd, .lr = 0.3, .groups = {}};  // Adam hides the length of a gradient
  run.global_batch = 4;
  const auto together = train_tiny(run);
  TinyRun first = plain_ddp(run);
  first.world_size = 1;
  first.global_batch = 2;
  // Rank 0 has the first two of four rows in each step, so its state is that of a training on these rows alone.
  TinyResult own;
  std::mutex mutex;
  run_ranks(1, [&](World& world) {
    with_strategy(first, world, [&](Strategy& strategy) {
      for (int64_t step = 0; step < run.steps; ++step) {
        StepInput input;
        input.micro_batches.push_back(tiny_batch(run, step * run.global_batch, 2));
        input.weight = input.rank_weight = 2 * run.weight_of_row();
        input.dropout_key = mix64(static_cast<uint64_t>(step));
        strategy.step(input);
      }
      collect_state(strategy, own.state, mutex);
    });
  });
  for (const auto& [name, values] : own.state) {
    if (!name.starts_with("param/")) continue;
    double worst = 0;
    for (size_t i = 0; i < values.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(values[i] - together.state.at(name)[i])));
    INFO(name);
    CHECK(worst < 2e-5);
    CHECK(together.state.contains("replica/" + name));
  }
}

TEST_CASE("the memory of comm hooks is as predicted: equal between steps, within 3 % at the peak", "[memory]") {
  at::set_num_threads(1);
  auto hooks = all_hooks();
  hooks.push_back(with_hook("noop_hook"));
  hooks.push_back(with_hook("powerSGD_hook", {{"start_powerSGD_iter", 0}, {"use_error_feedback", false}}));
  for (auto run : hooks)
    for (const bool wide : {false, true}) {
      run.vocab = 503;
      run.loss_chunk_tokens = 128;
      run.dim = wide ? 128 : 64;
      run.n_layers = 2;
      run.seq_len = wide ? 16 : 64;
      run.world_size = 2;
      run.options["bucket_cap_mb"] = 0.5;
      INFO(label(run) << ", wide " << wide);
      const auto spec = tiny_spec(run);
      const auto claim = find_strategy("ddp")->entry->memory(tiny_job(run, spec));
      const auto measured = measure_memory(run);
      CHECK(measured.between_steps == claim.between_steps);
      CHECK_THAT(static_cast<double>(claim.total()), WithinRel(static_cast<double>(measured.peak), 0.03));
    }
}
