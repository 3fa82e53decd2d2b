// Tells people what becomes of each column of a table.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

/// A column of the training rows.
struct ColumnSummary {
  std::string name;
  std::string kind = "";  ///< "number", "categories", "target: number", "target: 3 classes", or "left out"
  int64_t features = 0;   ///< numbers of a row that it becomes
  int64_t missing = 0;    ///< cells
  std::optional<double> mean = {}, std = {};  ///< of numbers
  std::vector<std::string> examples = {};     ///< the first different cells
};

/// The columns in the order of the file. Throws Error(usage) as training_table() does.
std::vector<ColumnSummary> table_summary(const Recipe::Data& data);

}  // namespace runner
