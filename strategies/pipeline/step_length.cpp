#include "strategies/pipeline/step_length.hpp"

#include <algorithm>

#include "strategies/pipeline/transfers.hpp"

namespace runner {

PipelineShape settled(PipelineShape shape) {
  shape.micro_batches = std::min(shape.micro_batches, settled_micro_batches(shape));
  return shape;
}

bool repeats(const PipelineShape& shape) {
  return shape.schedule != PipelineSchedule::interleaved_1f1b ||
         (shape.group == 0 && shape.micro_batches % shape.ranks == 0);
}

double step_length(const PipelineShape& shape, const PipelineTiming& timing) {
  const auto end = [&](int micro_batches) {
    PipelineShape played = shape;
    played.micro_batches = micro_batches;
    return simulate(played, *training_order_with_transfers(played), timing).end;
  };
  const int shorter = settled_micro_batches(shape) + shape.micro_batches % shape.ranks;
  const int longer = shorter + shape.ranks;
  if (!repeats(shape) || shape.micro_batches <= longer) return end(shape.micro_batches);
  const double at_longer = end(longer), of_each = (at_longer - end(shorter)) / shape.ranks;
  return at_longer + of_each * (shape.micro_batches - longer);
}

}  // namespace runner
