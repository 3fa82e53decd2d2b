// Parity, memory, traffic and use between steps of every form of the strategies, on the devices of the program.
#include "tests/support/device_suite.hpp"
#include "strategies/program/block_memory.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <numeric>

#include "tests/support/equal_training.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/recorded_traffic.hpp"
#include "tests/support/ring_channels.hpp"
#include "tests/support/strategy_forms.hpp"
#include "tests/support/temporary_folder.hpp"

namespace runner::testing {

namespace {

using nlohmann::json;

/// The run with at most as many ranks as the device has room for.
TinyRun fitted(TinyRun run, const TestDevice& device) {
  run.world_size = std::min(run.world_size, device.ranks_most);
  for (const char* size : {"hybrid_group_size", "mics_shard_size"})
    if (run.options.contains(size)) run.options[size] = std::gcd(run.options[size].get<int>(), run.world_size);
  return run;
}

Job device_job(const TinyRun& run, const ModelSpec& spec, const TestDevice& device) {
  Job job = tiny_job(run, spec);
  job.accelerator = device.accelerator;
  return job;
}

/// The same model, data and optimizer on one rank.
TinyRun on_one_rank(TinyRun run) {
  run.strategy = "single";
  run.world_size = 1;
  run.options = json::object();
  run.recompute = false;
  run.checkpointing = {};
  return run;
}

struct Tolerance {
  double loss, norm, state;  ///< relative; of the state: the sum of differences
};

/// Rounding differs between forms: sums have another order, and matrix products another shape. Adam makes steps of full size
/// also for gradients that are only rounding errors (those of a key's bias), so few elements of the state differ much.
Tolerance tolerance_of(const TinyRun& run, const TestDevice& device) {
  const bool halves =
      run.precision.starts_with("bf16") || run.precision.starts_with("16") || run.options.contains("ddp_comm_hook");
  return halves ? Tolerance{2e-2, 0.1, 0.2} : Tolerance{device.exact ? 1e-5 : 1e-4, 1e-3, 2e-2};
}

void check_close(const std::vector<double>& values, const std::vector<double>& expected, double tolerance) {
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i)
    if (std::isfinite(expected[i])) CHECK_THAT(values[i], Catch::Matchers::WithinRel(expected[i], tolerance));
}

/// Only parameters: the optimizer's state is an intermediate result.
void check_parameters_close(const TinyResult& result, const TinyResult& expected, double tolerance) {
  double apart = 0, size = 0;
  for (const auto& [name, values] : expected.state) {
    if (!name.starts_with("param/")) continue;
    const auto& mine = result.state.at(name);
    REQUIRE(mine.size() == values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      apart += std::abs(double{mine[i]} - double{values[i]});
      size += std::abs(double{values[i]});
    }
  }
  CHECK(apart < tolerance * size);  // also if a value is NaN
}

void check_follows(const TinyResult& result, const TinyResult& expected, const Tolerance& tolerance) {
  check_close(result.losses, expected.losses, tolerance.loss);
  check_close(result.norms, expected.norms, tolerance.norm);
  check_parameters_close(result, expected, tolerance.state);
}

std::string describe(const TinyRun& run) {
  return fmt::format("{} {}, {}, {} ranks, {}, accumulation {}, recompute {}", run.strategy, run.options.dump(),
                     run.family, run.world_size, run.precision, run.accumulation, run.recompute);
}

/// All forms on real devices; a part of them on the simulated device, which has tests of its own.
int every(const TestDevice& device) { return device.exact ? 5 : 1; }

}  // namespace

TEST_CASE("every form of every strategy trains as single does on the same device", "[gpu][parity]") {
  at::set_num_threads(1);
  TemporaryFolder folder;
  for (const auto& device : test_devices()) {
    EveryNth chosen(every(device));
    for (const Form& form : every_form(folder.path.string())) {
      if (!chosen()) continue;
      TinyRun run = fitted(form.run, device);
      INFO(device.name << ": " << form.label << ": " << describe(run));
      ModelSpec spec = tiny_spec(run);
      CHECK(find_strategy(run.strategy)->entry->refuse(device_job(run, spec, device)) == std::nullopt);
      auto expected = train_tiny(on_one_rank(run), device.launch);
      auto result = train_tiny(run, device.launch);
      CHECK(std::isfinite(expected.losses.back()));
      check_follows(result, expected, tolerance_of(run, device));
    }
  }
}

TEST_CASE("ranks on a ring send messages to both neighbours before they receive, on the device", "[gpu][channel]") {
  at::set_num_threads(1);
  for (const auto& device : test_devices())
    for (int ranks = 2; ranks <= std::min(3, device.ranks_most); ++ranks) {
      INFO(device.name << ", " << ranks << " ranks");
      CHECK_NOTHROW(device.launch(
          ranks, [](World& world) { RANK_CHECK(check_ring(world, int64_t{5} << 20) == std::vector<std::string>{}); }));
    }
}

TEST_CASE("a training on the device follows the one on the CPU within rounding", "[gpu][parity]") {
  at::set_num_threads(1);
  for (const auto& device : test_devices())
    for (TinyRun run : {device_run("single", 1), device_run("fsdp", 3),
                        device_run("zero", 2, {{"stage", 2}, {"offload_optimizer", true}})}) {
      run = fitted(run, device);
      INFO(device.name << ": " << describe(run));
      check_follows(train_tiny(run, device.launch), train_tiny(run), tolerance_of(run, device));
    }
}

namespace {

/// Adapters of a base in NF4.
std::vector<TinyRun> quantized_forms() {
  json offloaded{{"stage", 3}, {"stage3_param_persistence_threshold", 0}, {"offload_parameters", true}};
  std::vector<TinyRun> runs{device_run("single", 1),
                            device_run("ddp", 2),
                            device_run("zero", 2, {{"stage", 2}}),
                            device_run("fsdp", 3),
                            device_run("fsdp", 2, {{"cpu_offload", true}}),
                            device_run("zero", 2, offloaded)};
  for (auto& run : runs) {
    run.family = "llama";
    run.fine_tune.method = "dora";
    run.fine_tune.rank = 4;
    run.fine_tune.quantization = "nf4";
    run.fine_tune.double_quantization = &run != &runs.front();
  }
  return runs;
}

}  // namespace

TEST_CASE("a base in NF4 computes on the device as on the CPU", "[gpu][parity][quantization][rank20]") {
  at::set_num_threads(1);
  for (const auto& device : test_devices())
    for (TinyRun run : quantized_forms()) {
      run = fitted(run, device);
      INFO(device.name << ": " << describe(run));
      check_follows(train_tiny(run, device.launch), train_tiny(run), tolerance_of(run, device));
    }
}

// ---- memory

namespace {

/// Bytes of the rank with the most.
struct Measured {
  int64_t making = 0;         ///< peak when module_to_device() has returned
  int64_t steps = 0;          ///< peak of the steps
  int64_t between_steps = 0;  ///< when the last step is over, and its update
  int64_t pinned = 0;         ///< peak of all ranks together
};

Measured measure(const TinyRun& run, const TestDevice& device) {
  Measured most;
  std::mutex mutex;
  const int64_t pinned_before = device.pinned().now;
  device.launch(run.world_size, [&](World& world) {
    const int64_t before = device.memory(world.rank).now;
    device.reset_peak(world.rank);
    with_strategy(run, world, [&](Strategy& strategy) {
      const int64_t making = device.memory(world.rank).peak - before;
      device.reset_peak(world.rank);
      for (int64_t step = 0; step < run.steps; ++step) strategy.step(tiny_input(run, world.rank, step));
      (void)strategy.state();  // waits for an update that overlaps with the next forward
      auto use = device.memory(world.rank);
      std::lock_guard lock(mutex);
      most.making = std::max(most.making, making);
      most.steps = std::max(most.steps, use.peak - before);
      most.between_steps = std::max(most.between_steps, use.now - before);
    });
  });
  most.pinned = device.pinned().peak - pinned_before;
  return most;
}

/// Makes the model so large that memory outside the prediction (control words, small temporaries of kernels) is within the limits.
/// Real devices also keep workspaces for matrix products, so the model is larger there.
TinyRun sized(TinyRun run, const TestDevice& device) {
  run.vocab = device.exact ? 503 : 8192;
  run.loss_chunk_tokens = device.exact ? 128 : 512;
  run.dim = device.exact ? 128 : 512;
  run.seq_len = device.exact ? run.seq_len : 128;
  run.n_layers = device.exact ? 3 : 6;
  return run;
}

std::vector<TinyRun> memory_forms() {
  json all_sharded{{"stage", 3}, {"stage3_param_persistence_threshold", 0}, {"stage3_max_reuse_distance", 0}};
  std::vector<TinyRun> runs{
      device_run("single", 1),
      device_run("ddp", 2),
      device_run("fsdp", 3),
      device_run("fsdp", 3, {{"sharding_strategy", "SHARD_GRAD_OP"}}),
      device_run("fsdp", 4, {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", 2}}),
      device_run("fsdp", 2, {{"backward_prefetch", "BACKWARD_POST"}}),
      device_run("fsdp", 3, {{"cpu_offload", true}}),
      device_run("zero", 3, {{"stage", 1}}),
      device_run("zero", 3, {{"stage", 2}}),
      device_run("zero", 2, {{"stage", 2}, {"reduce_bucket_size", 100'000}}),
      device_run("zero", 3, all_sharded),
      device_run("zero", 2, {{"stage", 2}, {"offload_optimizer", true}}),
  };
  all_sharded.update({{"offload_optimizer", true}, {"offload_parameters", true}});
  runs.push_back(device_run("zero", 2, all_sharded));
  for (const char* strategy : {"single", "fsdp"}) {
    runs.push_back(device_run(strategy, std::string(strategy) == "single" ? 1 : 2));
    runs.back().family = "llama";
  }
  runs.push_back(device_run("fsdp", 2));
  runs.back().packed = true;
  for (const auto& run : quantized_forms()) runs.push_back(run);
  return runs;
}

/// Bytes of the largest reduced sum that is copied to host memory; 0 if sums stay on the device.
double moving_bytes(const TinyRun& run, const Job& job, const ModelSpec& spec) {
  const ParallelPlan plan = find_strategy(run.strategy)->entry->plan(job);
  if (!plan.separate_host || plan.optimizer == Tier::device) return 0;
  int64_t most = 0;
  for (const auto& unit : plan.units)
    if (!unit.frozen) most = std::max(most, layout_of(spec, plan, unit).shard * bytes_of(plan.gradient));
  return static_cast<double>(most);
}

void check_memory(const TinyRun& run, const TestDevice& device) {
  ModelSpec spec = tiny_spec(run);
  const Job job = device_job(run, spec, device);
  auto claim = find_strategy(run.strategy)->entry->memory(job);
  auto measured = measure(run, device);
  INFO(device.name << ": " << describe(run));
  auto claimed = static_cast<double>(claim.total()), peak = static_cast<double>(measured.steps);
  if (device.exact) CHECK(measured.between_steps == claim.between_steps);
  // HYBRID_SHARD in 16 bits needs up to 1.6 % more than claimed in the reduction between groups. DoRA's norms of rows convert a weight
  // of 16 bits to fp32, which is not claimed: with recomputation on one rank up to 2.4 % of this small model.
  const bool hybrid = run.options.contains("hybrid_group_size");
  const bool wide_norms = run.fine_tune.quantization != "none" && run.strategy == "single" && run.recompute &&
                          run.precision == "bf16-mixed";
  CHECK(claimed > (device.claim_least - (hybrid ? 0.01 : 0) - (wide_norms ? 0.015 : 0)) * peak);
  // The claim includes the sum whose copy to the host has not ended. Copies of simulated devices end at once.
  CHECK(claimed - (device.exact ? moving_bytes(run, job, spec) : 0) < device.claim_most * peak);
  CHECK(measured.making <= claim.total());
  // The batches of two steps, which no claim includes: pinned blocks wait for the device before they are used again.
  int64_t batches = 0;
  for (const auto& field : spec.batch)
    batches += 2 * run.accumulation * pinned_bytes(job.micro_batch_size * field.row_bytes()) * run.world_size;
  // LibTorch reads a number from a CUDA device through pinned memory, of 4 or 8 bytes.
  const int64_t numbers = device.exact ? 0 : 12 * run.world_size;
  CHECK(static_cast<double>(measured.pinned - batches - numbers) <=
        device.pinned_most * static_cast<double>(claim.host * run.world_size));
}

}  // namespace

TEST_CASE(
    "predicted device memory is exact for stored state, within the device's limits for steps, and covers construction",
    "[gpu][memory]") {
  at::set_num_threads(1);
  const auto devices = test_devices();
  auto run = GENERATE(from_range(memory_forms()));
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  run.accumulation = run.precision == "32-true" ? 1 : 2;
  run.recompute = GENERATE(false, true);
  static EveryNth chosen(5);
  const bool simulates = chosen();
  for (const auto& device : devices)
    if (device.memory && (simulates || !device.exact)) check_memory(fitted(sized(run, device), device), device);
}

// ---- traffic

TEST_CASE("the recorded collectives of every form are the predicted ones", "[gpu][recording]") {
  at::set_num_threads(1);
  TemporaryFolder folder;
  for (const auto& device : test_devices()) {
    EveryNth chosen(every(device));
    for (const Form& form : every_form(folder.path.string())) {
      if (!chosen()) continue;
      TinyRun run = fitted(form.run, device);
      INFO(device.name << ": " << form.label << ": " << describe(run));
      Wire claimed = claimed_traffic(run, device.accelerator);
      // An update on the host ends in the next step, which gathers the new values. So the first step has none to gather.
      const bool gathers_in_the_next =
          run.options.value("offload_optimizer", false) || run.options.value("cpu_offload", false);
      for (const auto& steps : record_traffic(run, device.launch))
        for (size_t step = gathers_in_the_next ? 1 : 0; step < steps.size(); ++step)
          CHECK(steps[step].strategy == claimed);
    }
  }
}

// ---- between steps

namespace {

/// Trains, and between steps evaluates, reads all of the training state, and writes it back.
std::vector<double> losses_with_uses_between_steps(const TinyRun& run, const TestDevice& device) {
  std::vector<double> losses;
  device.launch(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      const auto batch = tiny_batch(run, 0, 4);
      for (int64_t step = 0; step < run.steps; ++step) {
        double loss = strategy.step(tiny_input(run, world.rank, step)).loss;
        if (world.rank == 0) losses.push_back(loss);
        if (step == 0) strategy.evaluate(batch);
        for (const auto& tensor : strategy.state())
          if (tensor.numel() > 0) tensor.write(0, tensor.read(0, tensor.numel()));
        strategy.state_loaded();
      }
    });
  });
  return losses;
}

}  // namespace

TEST_CASE("evaluation and copies of the training state between steps change nothing", "[gpu][offload]") {
  at::set_num_threads(1);
  TemporaryFolder folder;
  std::vector<TinyRun> runs{device_run("single", 1),
                            device_run("ddp", 2),
                            device_run("fsdp", 3),
                            device_run("fsdp", 2, {{"cpu_offload", true}}),
                            device_run("zero", 3, {{"stage", 1}}),
                            device_run("zero", 2, offload_options({2, "cpu", ""}, "")),
                            device_run("zero", 2, offload_options({3, "cpu", "cpu"}, "")),
                            device_run("zero", 2, offload_options({3, "nvme", "nvme"}, folder.path.string()))};
  for (const auto& device : test_devices())
    for (TinyRun run : runs)
      for (std::string precision : {"32-true", "bf16-mixed"}) {
        run = fitted(run, device);
        run.precision = precision;
        INFO(device.name << ": " << describe(run));
        auto undisturbed = train_tiny(run, device.launch).losses, losses = losses_with_uses_between_steps(run, device);
        if (device.exact) CHECK(losses == undisturbed);
        check_close(losses, undisturbed, tolerance_of(run, device).loss);
      }
}

}  // namespace runner::testing
