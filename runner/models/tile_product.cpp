#include "runner/models/tile_product.hpp"

#include "runner/base/float8.hpp"
#include "runner/base/vector_clones.hpp"

namespace runner {

namespace {

constexpr int lanes = 8, parts = tile_columns / lanes;

/// C = scale A B, or C += A B where `accumulate`, of one tile; A(r, k) is at a[r * row + k * step].
template <bool accumulate>
RUNNER_VECTOR_INLINE void one_tile(const float* a, int64_t row, int64_t step, const float* b, int64_t ldb,
                                   int64_t depth, float scale, float* c, int64_t ldc) {
  Float8 sum[tile_rows][parts];
#pragma GCC unroll 12
  for (int i = 0; i < tile_rows * parts; ++i) sum[i / parts][i % parts] = Float8{};
  for (int64_t k = 0; k < depth; ++k, a += step, b += ldb) {
    Float8 right[parts];
    for (int part = 0; part < parts; ++part) load(right[part], b + part * lanes);
#pragma GCC unroll 6
    for (int r = 0; r < tile_rows; ++r)
      for (int part = 0; part < parts; ++part) sum[r][part] += a[r * row] * right[part];
  }
#pragma GCC unroll 6
  for (int r = 0; r < tile_rows; ++r)
    for (int part = 0; part < parts; ++part) {
      float* out = c + r * ldc + part * lanes;
      Float8 before{};
      if (accumulate) load(before, out);
      store(out, accumulate ? before + sum[r][part] : sum[r][part] * scale);
    }
}

}  // namespace

RUNNER_VECTOR_CLONES void tile_product(const float* a, int64_t lda, const ColumnGroups& b, int64_t depth, float scale,
                                       float* c, int64_t ldc, int64_t columns) {
  const ColumnGroups right = b;
  const float* group = right.data;
  for (int64_t column = 0; column < columns; column += tile_columns, group += right.group_stride)
    one_tile<false>(a, lda, 1, group, right.row_stride, depth, scale, c + column, ldc);
}

RUNNER_VECTOR_CLONES void add_transposed_tile_product(const float* a, int64_t lda, const ColumnGroups& b, int64_t depth,
                                                      float* c, int64_t ldc, int64_t columns) {
  const ColumnGroups right = b;
  const float* group = right.data;
  for (int64_t column = 0; column < columns; column += tile_columns, group += right.group_stride)
    one_tile<true>(a, 1, lda, group, right.row_stride, depth, 1.0f, c + column, ldc);
}

}  // namespace runner
