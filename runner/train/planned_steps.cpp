#include "runner/train/planned_steps.hpp"

#include <algorithm>
#include <set>

#include "runner/selection/plan.hpp"

namespace runner {

namespace {

/// count * each + before, or INT64_MAX on overflow.
int64_t saturated(int64_t count, int64_t each, int64_t before) {
  int64_t sum = 0;
  bool over = __builtin_mul_overflow(count, each, &sum) || __builtin_add_overflow(sum, before, &sum);
  return over ? INT64_MAX : sum;
}

}  // namespace

int64_t planned_steps(const Recipe& resolved, int world_size, int64_t samples) {
  if (resolved.run.fast_dev_run > 0) return resolved.run.fast_dev_run;
  const auto& train = resolved.train;
  int64_t most = train.max_steps.value_or(INT64_MAX);
  if (!train.max_epochs) return most;
  // The batch size can change only at these epochs.
  std::set<int64_t> borders{0, *train.max_epochs};
  if (train.accumulate_grad_batches)
    for (const auto& [epoch, factor] : *train.accumulate_grad_batches)
      if (epoch < *train.max_epochs) borders.insert(epoch);
  int64_t steps = 0;
  for (auto from = borders.begin(), to = std::next(from); to != borders.end(); from = to++) {
    int64_t size = global_batch_size(resolved, world_size, *from);
    steps = saturated(*to - *from, (samples + size - 1) / size, steps);
  }
  return std::min(most, steps);
}

}  // namespace runner
