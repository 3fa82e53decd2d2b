// Tensor memory of a tiny training, by the counting allocator: what claims are held against.
#pragma once
#include <algorithm>
#include <mutex>

#include "strategies/collective/counting_allocator.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

/// Of the rank with the most.
struct MeasuredMemory {
  int64_t between_steps = 0;  ///< when the last step is over, and its update
  int64_t peak = 0;           ///< of the last step
};

/// By the third step the optimizer's state and the Reducer's final buckets exist.
inline MeasuredMemory measure_memory(const TinyRun& run) {
  MeasuredMemory most;
  std::mutex mutex;
  run_ranks(run.world_size, [&](World& world) {
    MemoryAccount account;
    AccountScope scope(account);
    with_strategy(run, world, [&](Strategy& strategy) {
      for (int64_t step = 0; step < 3; ++step) {
        account.reset_peak();
        strategy.step(tiny_input(run, world.rank, step));
      }
      (void)strategy.state();  // waits for an update that goes on beside the next forward
      std::lock_guard lock(mutex);
      most.between_steps = std::max(most.between_steps, account.current());
      most.peak = std::max(most.peak, account.peak());
    });
  });
  return most;
}

}  // namespace runner::testing
