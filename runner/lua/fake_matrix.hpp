// A Matrix of plain numbers, without derivatives: for `runner lua check` and for tests.
#pragma once
#include "runner/lua/matrix.hpp"

namespace runner::lua {

/// `numbers` row by row.
Matrix::Pointer make_fake_matrix(int64_t rows, int64_t columns, std::vector<double> numbers, bool whole = false);
/// Its numbers; `matrix` was made here.
const std::vector<double>& fake_numbers(const Matrix& matrix);

}  // namespace runner::lua
