#include "runner/train/planned_steps.hpp"

#include <algorithm>
#include <set>

#include "runner/selection/plan.hpp"

namespace runner {

namespace {

/// Steps of `size` samples that take `samples`. The last one may be short, unless short ones are dropped.
int64_t steps_for(int64_t samples, int64_t size, bool drop_last) {
  return samples / size + (samples % size != 0 && !drop_last);
}

/// count * each + before, or INT64_MAX on overflow.
int64_t saturated(int64_t count, int64_t each, int64_t before) {
  int64_t sum = 0;
  bool over = __builtin_mul_overflow(count, each, &sum) || __builtin_add_overflow(sum, before, &sum);
  return over ? INT64_MAX : sum;
}

}  // namespace

int64_t planned_steps(const Recipe& resolved, int data_ranks, int64_t samples, const TrainingStart& start) {
  if (resolved.run.fast_dev_run > 0) return start.step + resolved.run.fast_dev_run;
  const auto& train = resolved.train;
  int64_t most = train.max_steps.value_or(INT64_MAX);
  if (!train.max_epochs) return most;
  const bool drop_last = resolved.data.drop_last;
  int64_t steps = start.step, epoch = start.position.epoch;
  if (epoch >= *train.max_epochs) return std::min(most, steps);
  if (start.position.sample > 0) {  // the rest of an epoch; less than nothing if the data have become shorter
    int64_t rest = std::max<int64_t>(0, samples - start.position.sample);
    steps += steps_for(rest, global_batch_size(resolved, data_ranks, epoch++), drop_last);
  }
  // The batch size can change only at these epochs.
  std::set<int64_t> borders{epoch, *train.max_epochs};
  if (train.accumulate_grad_batches)
    for (const auto& [from, factor] : *train.accumulate_grad_batches)
      if (from > epoch && from < *train.max_epochs) borders.insert(from);
  for (auto from = borders.begin(), to = std::next(from); to != borders.end(); from = to++) {
    int64_t size = global_batch_size(resolved, data_ranks, *from);
    steps = saturated(*to - *from, steps_for(samples, size, drop_last), steps);
  }
  return std::min(most, steps);
}

}  // namespace runner
