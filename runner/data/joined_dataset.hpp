// Several data sets, one after another.
#pragma once
#include <memory>
#include <vector>

#include "runner/data/data.hpp"

namespace runner {

/// The samples of the first part, then those of the second, and so on. All parts have the same fields and have learned the same.
std::unique_ptr<Dataset> joined_dataset(std::vector<std::unique_ptr<Dataset>> parts);

}  // namespace runner
