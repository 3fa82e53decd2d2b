// A Matrix of plain numbers, without derivatives: for `runner lua check` and for tests.
#pragma once
#include "runner/lua/matrix.hpp"

namespace runner::lua {

/// `numbers` are in row-major order.
Matrix::Pointer make_fake_matrix(int64_t rows, int64_t columns, std::vector<double> numbers, bool whole = false);
/// The numbers of a matrix that make_fake_matrix() made.
const std::vector<double>& fake_numbers(const Matrix& matrix);

}  // namespace runner::lua
