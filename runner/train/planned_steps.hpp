// Number of optimizer steps of a recipe. Torch-free.
#pragma once
#include <cstdint>
#include <optional>

#include "runner/config/recipe.hpp"
#include "runner/data/loader.hpp"

namespace runner {

/// Where a training starts: after `step` steps, at a position in the data. A checkpoint may be from another batch size,
/// number of ranks or data, so the one does not follow from the other.
struct TrainingStart {
  int64_t step = 0;
  DataPosition position = {};
  std::optional<double> schedule_step =
      {};  ///< the steps of the schedule that these count as, if they are not one each
};

/// The number of the last step. With max_epochs: the steps taken before, and the steps for the samples that remain
/// until the end of the last epoch; an epoch has `samples`. With max_steps: that number. With both, the smaller one.
/// INT64_MAX with neither. fast_dev_run takes precedence, and counts from the start.
int64_t planned_steps(const Recipe& resolved, int data_ranks, int64_t samples, const TrainingStart& start = {});
/// The number of the last step with a data set, whose size is asked for only if it counts.
inline int64_t planned_steps(const Recipe& resolved, int data_ranks, const Dataset& data, const TrainingStart& start) {
  return planned_steps(resolved, data_ranks, resolved.train.max_epochs ? data.size() : 0, start);
}

}  // namespace runner
