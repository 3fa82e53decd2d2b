// Tables whose rows are records: JSON objects with a value for each column.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/data/table.hpp"

namespace runner {

/// Reads all records of the files. Columns are the names in the records, in order of their first record; a record without one of them, or
/// with null, has a missing cell there. A column has numbers if each of its cells is a number, true or false. Throws Error(usage) with
/// file, record and column.
Table read_record_table(const Recipe::Data& data, const std::vector<std::string>& files, const TableReading& reading);

}  // namespace runner
