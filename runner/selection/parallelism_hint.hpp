// What a recipe contains instead of a strategy that is named like a form of parallelism, which is an axis of the mesh here.
#pragma once
#include <string>

namespace runner {

/// "context parallelism is an axis of the mesh ..."; empty if `name`, which is no strategy, names no form of parallelism.
std::string parallelism_hint(const std::string& name);

}  // namespace runner
