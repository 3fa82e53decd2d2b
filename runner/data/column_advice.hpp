// Guesses what a column of texts is: numbers in another form, times, or names of rows.
#pragma once
#include <span>
#include <string>

#include "runner/data/table.hpp"

namespace runner {

/// Says what a column of texts has, and what can be done about it: "it has dates or times, such as `2024-09-12`; ...". Empty: its texts look
/// like categories. `rows`: those of the training.
std::string column_advice(const Table& table, const TableColumn& column, std::span<const int64_t> rows);

}  // namespace runner
