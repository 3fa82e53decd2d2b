// Tensor memory of a tiny training, by the counting allocator: what claims are compared with.
#pragma once
#include <algorithm>
#include <mutex>

#include "strategies/collective/counting_allocator.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

/// Bytes of the rank with the most. Peaks are counted from before the model is made.
struct MeasuredMemory {
  int64_t placed = 0;         ///< peak when module_to_device() has returned
  int64_t loaded = 0;         ///< peak when then all of the training state has been written, as from a checkpoint
  int64_t between_steps = 0;  ///< when the last step is over, and its update
  int64_t peak = 0;           ///< of everything
};

namespace detail {

template <typename Body>
MeasuredMemory measure(const TinyRun& run, Body&& body) {
  MeasuredMemory most;
  std::mutex mutex;
  run_ranks(run.world_size, [&](World& world) {
    MemoryAccount account;
    AccountScope scope(account);
    MeasuredMemory mine;
    with_strategy(run, world, [&](Strategy& strategy) {
      mine.placed = account.peak();
      body(strategy, world, account, mine);
      mine.peak = account.peak();
    });
    std::lock_guard lock(mutex);
    for (auto part : {&MeasuredMemory::placed, &MeasuredMemory::loaded, &MeasuredMemory::between_steps,
                      &MeasuredMemory::peak})
      most.*part = std::max(most.*part, mine.*part);
  });
  return most;
}

}  // namespace detail

/// Of three steps.
inline MeasuredMemory measure_memory(const TinyRun& run) {
  return detail::measure(run, [&](Strategy& strategy, World& world, MemoryAccount& account, MeasuredMemory& mine) {
    for (int64_t step = 0; step < 3; ++step) strategy.step(tiny_input(run, world.rank, step));
    (void)strategy.state();  // waits for an update that goes on beside the next forward
    mine.between_steps = account.current();
  });
}

/// Of loading alone: zeros for every tensor, `piece` elements at a time.
inline MeasuredMemory measure_loading(const TinyRun& run, int64_t piece) {
  return detail::measure(run, [&](Strategy& strategy, World&, MemoryAccount& account, MeasuredMemory& mine) {
    for (const auto& tensor : strategy.state())
      for (int64_t begin = 0; begin < tensor.numel(); begin += piece)
        tensor.write(begin, torch::zeros({std::min(piece, tensor.numel() - begin)}));
    strategy.state_loaded();
    mine.loaded = account.peak();
  });
}

}  // namespace runner::testing
