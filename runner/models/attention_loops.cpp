#include "runner/models/attention_loops.hpp"

#include <algorithm>
#include <limits>

#include "runner/base/float8.hpp"
#include "runner/base/vector_clones.hpp"
#include "runner/models/tile_product.hpp"

namespace runner {

namespace {

constexpr int64_t lanes = 8;
/// Rows that are processed together. With two vectors each, they are four independent dependency chains.
constexpr int64_t pair = 2;
static_assert(tile_rows % pair == 0 && tile_columns == 2 * lanes);

int64_t visible_keys(const ScoreTile& scores, int64_t row) { return std::min(scores.keys, scores.first_visible + row); }

RUNNER_VECTOR_INLINE void load_group(Float8 (&x)[2 * pair], const float* row, int64_t stride) {
#pragma GCC unroll 4
  for (int i = 0; i < 2 * pair; ++i) load(x[i], row + i / 2 * stride + i % 2 * lanes);
}

RUNNER_VECTOR_INLINE void store_group(float* row, int64_t stride, const Float8 (&x)[2 * pair]) {
#pragma GCC unroll 4
  for (int i = 0; i < 2 * pair; ++i) store(row + i / 2 * stride + i % 2 * lanes, x[i]);
}

RUNNER_VECTOR_INLINE float sum_of(const Float8& x) {
  Float8 four = x + __builtin_shuffle(x, Int8{4, 5, 6, 7, 0, 1, 2, 3});
  Float8 two = four + __builtin_shuffle(four, Int8{2, 3, 0, 1, 6, 7, 4, 5});
  return two[0] + two[1];
}

RUNNER_VECTOR_INLINE void keep_larger(Float8& x, const Float8& y) { x = x > y ? x : y; }

RUNNER_VECTOR_INLINE float largest_of(const Float8& row) {
  Float8 x = row;
  keep_larger(x, __builtin_shuffle(x, Int8{4, 5, 6, 7, 0, 1, 2, 3}));
  keep_larger(x, __builtin_shuffle(x, Int8{2, 3, 0, 1, 6, 7, 4, 5}));
  return x[0] > x[1] ? x[0] : x[1];
}

/// Writes `value` to the columns from `visible` on, which are in the last two groups.
RUNNER_VECTOR_INLINE void mask_row(float* row, int64_t columns, int64_t visible, float value) {
  constexpr Int8 places{0, 1, 2, 3, 4, 5, 6, 7};
  const Float8 masked = Float8{} + value;
  for (int64_t c = std::max<int64_t>(0, columns - 2 * tile_columns); c < columns; c += lanes) {
    Float8 x;
    load(x, row + c);
    store(row + c, places + static_cast<int32_t>(c) >= static_cast<int32_t>(visible) ? masked : x);
  }
}

/// Writes `value` to the columns before those that row `row` sees.
RUNNER_VECTOR_INLINE void mask_start(const ScoreTile& scores, int64_t row, float* data, float value) {
  std::fill_n(data, std::clamp<int64_t>(scores.first_seen + row, 0, scores.columns), value);
}

/// Stands for the maximum of a row that has seen no key yet, so that differences from it are defined.
constexpr float no_score = -1e30f;

/// For two rows: the maxima of the scores and of the earlier maxima.
RUNNER_VECTOR_INLINE void row_maxima(const float* row, int64_t stride, int64_t columns, const RunningSoftmax* before,
                                     float (&largest)[pair]) {
  Float8 maxima[2 * pair], x[2 * pair];
  load_group(maxima, row, stride);
  for (int64_t c = tile_columns; c < columns; c += tile_columns) {
    load_group(x, row + c, stride);
#pragma GCC unroll 4
    for (int i = 0; i < 2 * pair; ++i) keep_larger(maxima[i], x[i]);
  }
  for (int r = 0; r < pair; ++r) {
    keep_larger(maxima[2 * r], maxima[2 * r + 1]);
    largest[r] = std::max(before[r].largest, largest_of(maxima[2 * r]));
  }
}

}  // namespace

RUNNER_VECTOR_CLONES void copy_rows(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float scale,
                                    float* to, int64_t to_stride, int64_t padded) {
  for (int64_t r = 0; r < rows; ++r, from += from_stride, to += to_stride) {
    int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      Float8 x;
      load(x, from + c);
      store(to + c, x * scale);
    }
    for (; c < columns; ++c) to[c] = from[c] * scale;
    for (; c < padded; ++c) to[c] = 0;
  }
}

void prefetch_rows(const float* from, int64_t stride, int64_t rows, int64_t columns) {
  constexpr int64_t line = 16;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; c += line) __builtin_prefetch(from + r * stride + c);
}

RUNNER_VECTOR_CLONES void pack_transposed(const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                                          float* to) {
  for (int64_t group = 0; group < rows; group += lanes) {
    const float* source = from + group * from_stride;
    float* target = to + group / tile_columns * tile_columns * columns + group % tile_columns;
    int64_t full = std::min(lanes, rows - group), c = 0;
    for (; full == lanes && c + lanes <= columns; c += lanes)
      transpose_square(source + c, from_stride, target + c * tile_columns, tile_columns);
    for (; c < columns; ++c)
      for (int64_t r = 0; r < lanes; ++r) target[c * tile_columns + r] = r < full ? source[r * from_stride + c] : 0;
  }
  if (rows % tile_columns > 0 && rows % tile_columns <= lanes)
    for (int64_t c = 0; c < columns; ++c)
      store(to + (rows / tile_columns * columns + c) * tile_columns + lanes, Float8{});
}

RUNNER_VECTOR_CLONES void softmax_tile(const ScoreTile& scores, RunningSoftmax* rows, float* rescale) {
  const int64_t columns = scores.columns, stride = scores.stride;
  for (int64_t r = 0; r < tile_rows && visible_keys(scores, 0) < columns; ++r)
    mask_row(scores.data + r * stride, columns, visible_keys(scores, r), -std::numeric_limits<float>::infinity());
  for (int64_t r = 0; r < tile_rows && scores.windowed; ++r)
    mask_start(scores, r, scores.data + r * stride, -std::numeric_limits<float>::infinity());
  float change[lanes] = {}, sum[tile_rows];
  for (int64_t r = 0; r < tile_rows; r += pair) {
    float* row = scores.data + r * stride;
    float largest[pair];
    row_maxima(row, stride, columns, rows + r, largest);
    for (int i = 0; i < pair && scores.windowed; ++i) largest[i] = std::max(largest[i], no_score);
    Float8 x[2 * pair], sums[2 * pair] = {};
    for (int64_t c = 0; c < columns; c += tile_columns) {
      load_group(x, row + c, stride);
#pragma GCC unroll 4
      for (int i = 0; i < 2 * pair; ++i) x[i] -= largest[i / 2];
      exp2_of_negative(x);
#pragma GCC unroll 4
      for (int i = 0; i < 2 * pair; ++i) sums[i] += x[i];
      store_group(row + c, stride, x);
    }
    for (int i = 0; i < pair; ++i) {
      change[r + i] = rows[r + i].largest - largest[i];
      rows[r + i].largest = largest[i];
      sum[r + i] = sum_of(sums[2 * i] + sums[2 * i + 1]);
    }
  }
  Float8 factors[1];
  load(factors[0], change);
  exp2_of_negative(factors);
  for (int64_t r = 0; r < tile_rows; ++r) {
    rescale[r] = factors[0][r];
    rows[r].sum = rows[r].sum * rescale[r] + sum[r];
  }
}

RUNNER_VECTOR_CLONES void softmax_gradient_tile(const ScoreTile& scores, float* probability_gradients, int64_t rows,
                                                const float* log_sum_exp, const float* dot) {
  const int64_t columns = scores.columns, stride = scores.stride;
  for (int64_t r = 0; r < tile_rows; r += pair) {
    float *p = scores.data + r * stride, *gradient = probability_gradients + r * stride;
    float subtract[pair] = {}, mean[pair] = {};
    for (int64_t i = 0; i < pair && r + i < rows; ++i) subtract[i] = log_sum_exp[r + i], mean[i] = dot[r + i];
    for (int64_t c = 0; c < columns; c += tile_columns) {
      Float8 x[2 * pair], change[2 * pair];
      load_group(x, p + c, stride);
      load_group(change, gradient + c, stride);
#pragma GCC unroll 4
      for (int i = 0; i < 2 * pair; ++i) x[i] -= subtract[i / 2];
      exp2_of_negative(x);
#pragma GCC unroll 4
      for (int i = 0; i < 2 * pair; ++i) change[i] = x[i] * (change[i] - mean[i / 2]);
      store_group(p + c, stride, x);
      store_group(gradient + c, stride, change);
    }
    for (int64_t i = 0; i < pair && visible_keys(scores, 0) < columns; ++i) {
      mask_row(p + i * stride, columns, visible_keys(scores, r + i), 0);
      mask_row(gradient + i * stride, columns, visible_keys(scores, r + i), 0);
    }
    for (int64_t i = 0; i < pair && scores.windowed; ++i) {
      mask_start(scores, r + i, p + i * stride, 0);
      mask_start(scores, r + i, gradient + i * stride, 0);
    }
  }
}

RUNNER_VECTOR_CLONES void merge_tile(float* to, int64_t to_stride, int64_t rows, int64_t columns, const float* tile,
                                     int64_t tile_stride, bool first, const float* keep, const float* scale) {
  for (int64_t r = 0; r < rows; ++r, to += to_stride, tile += tile_stride) {
    const float kept = keep[r], factor = scale[r];
    int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      Float8 x;
      load(x, tile + c);
      if (!first) {
        Float8 before;
        load(before, to + c);
        x = before * kept + x;
      }
      store(to + c, x * factor);
    }
    for (; c < columns; ++c) to[c] = first ? tile[c] * factor : (to[c] * kept + tile[c]) * factor;
  }
}

RUNNER_VECTOR_CLONES void row_dots(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows,
                                   int64_t columns, float* dots) {
  for (int64_t r = 0; r < rows; ++r, a += a_stride, b += b_stride) {
    Float8 sums{}, x, y;
    int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      load(x, a + c);
      load(y, b + c);
      sums += x * y;
    }
    dots[r] = sum_of(sums);
    for (; c < columns; ++c) dots[r] += a[c] * b[c];
  }
}

}  // namespace runner
