// Measures the tensor memory of a tiny training with the counting allocator. Tests compare it with predicted memory.
#pragma once
#include <algorithm>
#include <mutex>

#include "strategies/collective/counting_allocator.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

/// Bytes. Counting starts before the model is built.
struct MeasuredMemory {
  int64_t placed = 0;         ///< peak until module_to_device() returns
  int64_t loaded = 0;         ///< peak until all of the training state has been written, as from a checkpoint
  int64_t between_steps = 0;  ///< memory in use after the last step and its update
  int64_t peak = 0;           ///< peak of the complete run
};

namespace detail {

/// Of each rank.
template <typename Body>
std::vector<MeasuredMemory> measure(const TinyRun& run, Body&& body) {
  std::vector<MeasuredMemory> ranks(static_cast<size_t>(run.world_size));
  run_ranks(run.world_size, [&](World& world) {
    MemoryAccount account;
    AccountScope scope(account);
    MeasuredMemory& mine = ranks[static_cast<size_t>(world.rank)];
    with_strategy(run, world, [&](Strategy& strategy) {
      mine.placed = account.peak();
      body(strategy, world, account, mine);
      mine.peak = account.peak();
    });
  });
  return ranks;
}

inline MeasuredMemory most_of(const std::vector<MeasuredMemory>& ranks) {
  MeasuredMemory most;
  for (const auto& one : ranks)
    for (auto part :
         {&MeasuredMemory::placed, &MeasuredMemory::loaded, &MeasuredMemory::between_steps, &MeasuredMemory::peak})
      most.*part = std::max(most.*part, one.*part);
  return most;
}

}  // namespace detail

/// Memory of three steps on each rank. Each step has an evaluation of one micro-batch if the run validates.
inline std::vector<MeasuredMemory> measure_memory_of_ranks(const TinyRun& run) {
  return detail::measure(run, [&](Strategy& strategy, World& world, MemoryAccount& account, MeasuredMemory& mine) {
    const int64_t rows = run.global_batch / strategy.data_ranks() / run.accumulation;
    for (int64_t step = 0; step < 3; ++step) {
      strategy.step(tiny_input(run, world.rank, step));
      if (run.validates) strategy.evaluate(tiny_batch(run, 100, rows));
    }
    (void)strategy.state();  // waits for an update that runs during the next forward pass
    mine.between_steps = account.current();
  });
}

/// The most of all ranks.
inline MeasuredMemory measure_memory(const TinyRun& run) { return detail::most_of(measure_memory_of_ranks(run)); }

/// The most memory of loading alone: writes zeros to every tensor, `piece` elements at a time.
inline MeasuredMemory measure_loading(const TinyRun& run, int64_t piece) {
  const auto load = [&](Strategy& strategy, World&, MemoryAccount& account, MeasuredMemory& mine) {
    for (const auto& tensor : strategy.state())
      for (int64_t begin = 0; begin < tensor.numel(); begin += piece)
        tensor.write(begin, torch::zeros({std::min(piece, tensor.numel() - begin)}));
    strategy.state_loaded();
    mine.loaded = account.peak();
  };
  return detail::most_of(detail::measure(run, load));
}

}  // namespace runner::testing
