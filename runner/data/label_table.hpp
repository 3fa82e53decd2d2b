// The labels of records as a table: the columns of data.target.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/data/table.hpp"

namespace runner {

struct LabelFile {
  const Recipe::Data* data;  ///< the settings of its source; all sources have the same targets
  std::string path;
};

/// A row for each record of the files, in order, with the columns of data.target. A column has numbers if all its values are numbers
/// (TableColumn); true and false are texts. Throws Error(usage) with file and line for another value, and if no record has a column of
/// this name.
Table read_label_table(const std::vector<LabelFile>& files);

}  // namespace runner
