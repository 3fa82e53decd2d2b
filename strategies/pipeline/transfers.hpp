// Sends and receives as actions of a pipeline's orders. Torch-free.
#pragma once
#include <memory>

#include "strategies/pipeline/schedule.hpp"

namespace runner {

/// `computations` with the transfers between stages of different ranks. Each activation or gradient is sent just after it has been
/// computed. It is received just before it is used, or earlier if the sender would have the next one ready before that. So one message of
/// buffer for each pair of neighbours, direction and kind suffices, and messages need no tags: both sides have the same order. Where
/// receives are earlier, their places are best if backwards take twice as long as forwards.
PipelineOrder with_transfers(const PipelineShape& shape, const PipelineOrder& computations);

/// training_order() of a shape with its transfers. The results for the last few shapes are kept: all ranks of a pipeline have the same
/// order, and plans ask for it once for each rank. Can be called by several threads.
std::shared_ptr<const PipelineOrder> training_order_with_transfers(const PipelineShape& shape);

}  // namespace runner
