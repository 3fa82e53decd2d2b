// The labels of records as a table: the columns of data.target.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/data/table.hpp"

namespace runner {

/// A row for each record of the files, in order, with the columns of data.target. `files`: each with the settings of its source, of which
/// all have the same targets. A column has numbers if all its values are (TableColumn); true and false are texts. Throws Error(usage) with file and line
/// for another value, and if no record has a column of this name.
struct LabelFile {
  const Recipe::Data* data;
  std::string path;
};
Table read_label_table(const std::vector<LabelFile>& files);

}  // namespace runner
