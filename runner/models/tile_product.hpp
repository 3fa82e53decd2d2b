// Products of small fp32 matrices in host memory, in tiles of 6 rows and 16 columns that fit in registers.
#pragma once
#include <cstdint>

namespace runner {

constexpr int64_t tile_rows = 6, tile_columns = 16;

/// A right-hand matrix in groups of tile_columns columns: element (k, c) is at data[(c / tile_columns) * group_stride +
/// k * row_stride + c % tile_columns].
struct ColumnGroups {
  const float* data;
  int64_t group_stride, row_stride;
};

/// C = scale A B for tile_rows rows, A [tile_rows, depth] and C [tile_rows, columns] row-major with strides lda and
/// ldc; columns is a multiple of tile_columns.
void tile_product(const float* a, int64_t lda, const ColumnGroups& b, int64_t depth, float scale, float* c, int64_t ldc,
                  int64_t columns);

/// C += A^T B for tile_rows columns of A [depth, tile_rows].
void add_transposed_tile_product(const float* a, int64_t lda, const ColumnGroups& b, int64_t depth, float* c,
                                 int64_t ldc, int64_t columns);

}  // namespace runner
