// The time of a step with any number of micro-batches, from plays of steps with few. Torch-free.
#pragma once
#include "strategies/pipeline/simulation.hpp"

namespace runner {

/// A number of micro-batches after which a rank frees as many activations as it keeps, and ranks wait as long for the next one as for each
/// of the later ones. It is a multiple of the ranks, so groups of interleaved_1f1b are equal.
inline int settled_micro_batches(const PipelineShape& shape) { return 4 * shape.ranks; }

/// The shape with at most settled_micro_batches().
PipelineShape settled(PipelineShape shape);

/// Whether a step with more micro-batches only repeats what ranks do: groups of interleaved_1f1b must be equal.
bool repeats(const PipelineShape& shape);

/// The end of the last action in a step of training_order_with_transfers(). If the step repeats what ranks do, it plays five micro-batches
/// for each rank at most: each further micro-batch for each rank takes as long as the fifth. With equal stages this is exact, and within 2 % if
/// their times differ by up to 30 %.
double step_length(const PipelineShape& shape, const PipelineTiming& timing);

}  // namespace runner
