// A plan along the axes of its mesh: the communication and the pipeline, as text and as JSON.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "runner/selection/candidate.hpp"

namespace runner {

/// Lines for each axis along which the ranks communicate: what a rank sends in a step, and the time. Empty if times are not known, or if
/// there is only the data axis.
std::string axes_text(const Candidate& candidate);

/// [{axis, ranks, wire_bytes, seconds, exposed_seconds}], of a step.
nlohmann::json axes_json(const Candidate& candidate);

/// The schedule with the share of a step in which ranks wait, and a line for each rank: its blocks, its part of the work, and the bytes of
/// its tensors at the peak of a step. Lines end with a newline.
std::string pipeline_text(const PipelinePlan& pipeline);

}  // namespace runner
