// The stages of a planned pipeline, for readers.
#pragma once
#include <string>

#include "runner/selection/pipeline_plan.hpp"

namespace runner {

/// The schedule with the share of a step in which ranks wait, and a line for each rank: its blocks, its part of the work, and the bytes of
/// its tensors at the peak of a step. Lines end with a newline.
std::string pipeline_text(const PipelinePlan& pipeline);

}  // namespace runner
