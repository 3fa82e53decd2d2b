// A training that is continued from its state in memory.
#pragma once
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

/// Continues a training from its state after `before` steps, as a resumed run does.
inline TinyResult train_resumed(const TinyRun& first, const TinyRun& second, int64_t before) {
  TinyResult stopped, result;
  nlohmann::json scalars;
  std::mutex mutex;
  run_ranks(first.world_size, [&](World& world) {
    with_strategy(first, world, [&](Strategy& strategy) {
      for (int64_t step = 0; step < before; ++step) strategy.step(tiny_input(first, world.rank, step));
      collect_state(strategy, stopped.state, mutex);
      if (world.rank == 0) scalars = nlohmann::json::parse(strategy.scalars().dump());
    });
  });
  run_ranks(second.world_size, [&](World& world) {
    with_strategy(second, world, [&](Strategy& strategy) {
      for (const auto& tensor : strategy.state()) {
        auto& values = stopped.state.at(tensor.name);
        tensor.write(0, torch::from_blob(values.data() + tensor.offset, {tensor.numel()}, torch::kFloat32));
      }
      strategy.state_loaded();
      strategy.load_scalars(scalars);
      for (int64_t step = before; step < second.steps; ++step) {
        const auto outcome = strategy.step(tiny_input(second, world.rank, step));
        if (world.rank == 0) result.losses.push_back(outcome.loss);
      }
      collect_state(strategy, result.state, mutex);
    });
  });
  return result;
}

}  // namespace runner::testing
