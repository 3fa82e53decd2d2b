// The labels of records as a table: the columns of data.target.
#pragma once
#include "runner/config/recipe.hpp"
#include "runner/data/table.hpp"

namespace runner {

/// A row for each record of `files` of the format data.format, in order, with the columns of data.target. A column has numbers if all its
/// values are; true and false are texts. Throws Error(usage) with file and line for another value, and if no record has a
/// column of this name.
Table read_label_table(const Recipe::Data& data, const std::vector<std::string>& files);

}  // namespace runner
