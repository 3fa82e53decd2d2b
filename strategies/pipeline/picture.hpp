// A simulated pipeline schedule as text and as JSON. Torch-free.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "strategies/pipeline/simulation.hpp"

namespace runner {

/// A line for each rank, with time from left to right. An action begins with its name, such as "F0", "B0", "I0" or "W0", or "F0a" with
/// several virtual stages; '-' continues it, and '.' is idle time. Where there is little room, names are shortened to "F0" or "F", and what
/// takes less than a column can be missing. The last line explains the letters. No line of a rank is wider than `columns`, but time has at
/// least 10 columns.
std::string draw(const PipelineShape& shape, const PipelineSimulation& simulation, int columns);

/// The computations, ordered by rank and start:
/// [{"rank": 0, "kind": "forward", "stage": 0, "micro_batch": 0, "start": 0.0, "end": 1.0}, ...].
nlohmann::ordered_json to_json(const PipelineSimulation& simulation);

}  // namespace runner
