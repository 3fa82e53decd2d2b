// The recipe's words for a strategy that is named like a form of parallelism, which is an axis of the mesh here, or like a
// base class.
#pragma once
#include <string>

namespace runner {

/// "context parallelism is an axis of the mesh ..."; empty if `name`, which is no strategy, names none of these.
std::string parallelism_hint(const std::string& name);

}  // namespace runner
