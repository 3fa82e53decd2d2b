// How the norms of an adapted matrix's rows are computed (DoRA), and the temporary memory of that. Torch-free.
#pragma once
#include <algorithm>
#include <cstdint>

#include "strategies/contract/precision.hpp"

namespace runner {

/// Rows of a 16-bit matrix that are converted to fp32 at a time: parts that fit the cache of a CPU, or are large enough for an
/// accelerator. Other matrices are not converted.
inline int64_t row_norm_rows(bool on_host, int64_t rows, int64_t columns) {
  const int64_t part = int64_t{1} << (on_host ? 18 : 24);
  return std::min(rows, std::max<int64_t>(1, part / std::max<int64_t>(1, columns)));
}

/// Temporary bytes: the converted rows and low-rank factors, a value for each row, and the product of the matrix and a factor.
inline int64_t row_norm_bytes(bool on_host, DType dtype, int64_t rows, int64_t columns, int64_t rank) {
  const bool converts = bytes_of(dtype) < 4;
  const int64_t wide = std::max<int64_t>(4, bytes_of(dtype));
  const int64_t converted = converts ? row_norm_rows(on_host, rows, columns) * columns + rank * (rows + columns) : 0;
  return wide * (converted + rows + rows * rank);
}

}  // namespace runner
