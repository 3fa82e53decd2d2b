// Predicted device memory and pinned memory, compared with what the simulated allocators count: for the construction of
// the strategy and for its steps.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "strategies/collective/libtorch.hpp"
#include "tests/device/device_training.hpp"

using namespace runner;
using namespace runner::simulated;

namespace {

using nlohmann::json;

/// Bytes as tensors ask for them, of the rank with the most.
struct Measured {
  int64_t making = 0;         ///< peak when module_to_device() has returned
  int64_t steps = 0;          ///< peak of the steps
  int64_t between_steps = 0;  ///< when the last step is over, and its update
  int64_t pinned = 0;         ///< peak of all ranks together, in powers of two
};

Measured measure(const TinyRun& run) {
  Simulation simulation;
  Measured most;
  int64_t pinned_before = pinned_statistics().rounded;
  std::mutex mutex;
  run_on_devices(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      int64_t making = memory_statistics(world.rank).asked_peak;
      reset_peak(world.rank);
      for (int64_t step = 0; step < run.steps; ++step) strategy.step(tiny_input(run, world, step));
      (void)strategy.state();  // waits for an update that overlaps with the next forward
      auto use = memory_statistics(world.rank);
      std::lock_guard lock(mutex);
      most.making = std::max(most.making, making);
      most.steps = std::max(most.steps, use.asked_peak);
      most.between_steps = std::max(most.between_steps, use.asked);
    });
  });
  most.pinned = pinned_statistics().rounded_peak - pinned_before;
  CHECK(take_reports() == std::vector<std::string>());
  return most;
}

/// Big enough that what no claim counts (words of the step, small temporaries of kernels) does not show.
TinyRun sized(TinyRun run) {
  run.vocab = 503;
  run.loss_chunk_tokens = 128;
  run.dim = 128;
  run.n_layers = 3;
  return run;
}

std::vector<TinyRun> forms() {
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
  for (auto& run : runs) run = sized(std::move(run));
  return runs;
}

}  // namespace

TEST_CASE(
    "predicted device memory equals the measured peak: exactly for stored state, within -1 to +3 % for steps, "
    "and construction needs no more",
    "[device][memory]") {
  at::set_num_threads(1);
  auto run = GENERATE(from_range(forms()));
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  run.accumulation = run.precision == "32-true" ? 1 : 2;
  run.recompute = GENERATE(false, true);
  ModelSpec spec = make_spec(tiny_model(run), run.vocab, run.seq_len);
  auto claim = find_strategy(run.strategy)->entry->memory(device_job(run, spec));
  auto measured = measure(run);
  INFO(run.family << ", " << run.strategy << " " << run.options.dump() << ", " << run.precision << ", recompute " << run.recompute);
  auto claimed = static_cast<double>(claim.total()), peak = static_cast<double>(measured.steps);
  CHECK(measured.between_steps == claim.between_steps);
  // HYBRID_SHARD in 16 bits needs up to 1.6 % more than claimed in the reduction between groups.
  const bool hybrid = run.options.contains("hybrid_group_size");
  CHECK(claimed > (hybrid ? 0.98 : 0.99) * peak);
  CHECK(claimed < 1.03 * peak);
  CHECK(measured.making <= claim.total());
  CHECK(measured.pinned <= claim.host * run.world_size);
}
