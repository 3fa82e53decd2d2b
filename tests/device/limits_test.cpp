// What does not fit on a device: trainings that need more memory than it has, and options that need a device of its own memory.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/selection/memory_advice.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/collective/libtorch.hpp"
#include "tests/device/device_training.hpp"

using namespace runner;
using namespace runner::simulated;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Activations are a large part of its memory.
TinyRun with_large_batches(TinyRun run) {
  run.dim = 64;
  run.vocab = 211;
  run.seq_len = 64;
  run.global_batch = 24;
  run.loss_chunk_tokens = 64;
  return run;
}

struct Limited {
  std::optional<std::string> error;  ///< nullopt: the memory was enough
  TinyResult result = {};
};

/// Trains on devices that have `bytes` for the training.
Limited train_within(const TinyRun& run, int64_t bytes) {
  Simulation simulation;
  int64_t in_use = 0;
  for (int device = 0; device < run.world_size; ++device) in_use = std::max(in_use, memory_statistics(device).rounded);
  set_memory_limit(in_use + bytes);
  try {
    return {std::nullopt, train_on_devices(run)};
  } catch (const c10::OutOfMemoryError& error) {
    return {error.what_without_backtrace()};
  }
}

}  // namespace

TEST_CASE("a training that is too large ends with OutOfMemoryError, and the advised micro-batch fits",
          "[device][memory]") {
  at::set_num_threads(1);
  TinyRun run = with_large_batches(GENERATE(device_run("single", 1), device_run("ddp", 2), device_run("fsdp", 2),
                                            device_run("fsdp", 2, {{"cpu_offload", true}}),
                                            device_run("zero", 2, {{"stage", 3}, {"offload_optimizer", true}})));
  INFO(run.strategy << " " << run.options.dump());
  ModelSpec spec = tiny_spec(run);
  const Entry& entry = *find_strategy(run.strategy)->entry;
  Job job = device_job(run, spec);
  job.options = with_defaults(entry.options, run.options);
  const auto ways = ways_out_of_memory(entry, job);
  const int64_t micro_batch_size = job.micro_batch_size / 2;
  const std::string change = fmt::format("train.micro_batch_size = {}", micro_batch_size);
  auto way = std::ranges::find(ways, change, &WayOut::change);
  REQUIRE(way != ways.end());
  CHECK_THAT(memory_advice(entry, job), ContainsSubstring(change));

  // Enough for the advised change, and 5 % more because blocks are rounded.
  const int64_t claimed = entry.memory(job).total(), bytes = (claimed - way->saved_bytes) * 105 / 100;
  REQUIRE(bytes < claimed * 95 / 100);
  auto large = train_within(run, bytes);
  REQUIRE(large.error);
  CHECK_THAT(*large.error, ContainsSubstring("is out of memory: "));
  TinyRun small = run;
  small.accumulation = run.global_batch / run.world_size / micro_batch_size;
  auto fits = train_within(small, bytes);
  CHECK(fits.error.value_or("") == "");

  // The failure left nothing behind: the same training has room on a larger device, and the same losses.
  auto large_enough = train_within(run, claimed * 110 / 100);
  REQUIRE(large_enough.error.value_or("") == "");
  CHECK(take_reports() == std::vector<std::string>());
  REQUIRE(fits.result.losses.size() == large_enough.result.losses.size());
  for (size_t i = 0; i < fits.result.losses.size(); ++i)
    CHECK_THAT(fits.result.losses[i], Catch::Matchers::WithinRel(large_enough.result.losses[i], 1e-5));
}

TEST_CASE("offload to host memory has an effect on devices with their own memory, and a note on others",
          "[device][offload]") {
  for (const auto& run :
       {device_run("fsdp", 2, {{"cpu_offload", true}}), device_run("zero", 2, {{"offload_optimizer", true}}),
        device_run("zero", 2,
                   {{"stage", 3}, {"offload_parameters", true}, {"stage3_param_persistence_threshold", 0}})}) {
    INFO(run.strategy << " " << run.options.dump());
    ModelSpec spec = tiny_spec(run);
    const Entry& entry = *find_strategy(run.strategy)->entry;
    Job device = device_job(run, spec), cpu = testing::tiny_job(run, spec);
    auto notes_without_effect = [&](const Job& job) {
      return std::ranges::count_if(entry.notes(job),
                                   [](const auto& note) { return note.find(": no effect on CPU") != note.npos; });
    };
    CHECK(notes_without_effect(device) == 0);
    CHECK(notes_without_effect(cpu) == 1);
    CHECK(entry.memory(device).host > 0);
    CHECK(entry.memory(cpu).host == 0);
  }
}
