#include "runner/models/decode_loops.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "runner/base/bfloat16.hpp"
#include "runner/base/float8.hpp"
#include "runner/base/vector_clones.hpp"

namespace runner {

namespace {

constexpr int64_t width = 16;  ///< elements of a row of weights that are multiplied at a time

RUNNER_VECTOR_INLINE float sum_of(const Float8& x) {
  return ((x[0] + x[4]) + (x[1] + x[5])) + ((x[2] + x[6]) + (x[3] + x[7]));
}

/// 16 weights in the order of x.
RUNNER_VECTOR_INLINE void load_weights(Float8 (&w)[2], const float* from) {
  load(w[0], from);
  load(w[1], from + 8);
}
RUNNER_VECTOR_INLINE void load_weights(Float8 (&w)[2], const uint16_t* from) {
  Int8 pairs;
  __builtin_memcpy(&pairs, from, sizeof pairs);
  w[0] = reinterpret_cast<Float8>(pairs << 16);
  w[1] = reinterpret_cast<Float8>(pairs & static_cast<int32_t>(0xffff0000));
}
RUNNER_VECTOR_INLINE float one_weight(const float* from) { return *from; }
RUNNER_VECTOR_INLINE float one_weight(const uint16_t* from) {
  return std::bit_cast<float>(static_cast<uint32_t>(*from) << 16);
}

/// `outs` rows of weights times `rows` rows of x.
template <int outs, int rows, class Element>
RUNNER_VECTOR_INLINE void tile(const Element* weight, const float* x, float* y, int64_t in, int64_t out) {
  Float8 sums[outs][rows][2] = {};
  int64_t i = 0;
  for (; i + width <= in; i += width) {
    Float8 columns[rows][2];
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      load(columns[r][0], x + r * in + i);
      load(columns[r][1], x + r * in + i + 8);
    }
#pragma GCC unroll 4
    for (int o = 0; o < outs; ++o) {
      Float8 w[2];
      load_weights(w, weight + o * in + i);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) {
        sums[o][r][0] += w[0] * columns[r][0];
        sums[o][r][1] += w[1] * columns[r][1];
      }
    }
  }
  for (int o = 0; o < outs; ++o)
    for (int r = 0; r < rows; ++r) {
      float sum = sum_of(sums[o][r][0] + sums[o][r][1]);
      for (int64_t rest = i; rest < in; ++rest) sum += one_weight(weight + o * in + rest) * x[r * in + rest];
      y[r * out + o] = sum;
    }
}

/// The tiles of rows [begin, end) of the weights, `outs` at a time.
template <int outs, int rows, class Element>
RUNNER_VECTOR_INLINE void tiles(const Element* weight, const float* x, float* y, int64_t in, int64_t out, int64_t begin,
                                int64_t end) {
  int64_t o = begin;
  for (; o + outs <= end; o += outs) tile<outs, rows>(weight + o * in, x, y + o, in, out);
  for (; o < end; ++o) tile<1, rows>(weight + o * in, x, y + o, in, out);
}

template <class Element>
RUNNER_VECTOR_INLINE void product(const Element* weight, const float* x, float* y, int64_t rows, int64_t in,
                                  int64_t out, int64_t begin, int64_t end) {
  if (rows == 1) return tiles<4, 1>(weight, x, y, in, out, begin, end);
  if (rows == 2) return tiles<2, 2>(weight, x, y, in, out, begin, end);
  if (rows == 3) return tiles<1, 3>(weight, x, y, in, out, begin, end);
  tiles<1, 4>(weight, x, y, in, out, begin, end);
}

RUNNER_VECTOR_CLONES float dot(const float* a, const float* b, int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

RUNNER_VECTOR_CLONES void add_scaled(float* __restrict to, const float* __restrict from, float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

/// x = 2^(x log2(e) - subtract), for a padded count. Returns the sum.
RUNNER_VECTOR_CLONES float exponentials_of(float* x, int64_t padded, float subtract) {
  Float8 sum = {};
  for (int64_t i = 0; i < padded; i += 8) {
    Float8 value[1];
    load(value[0], x + i);
    value[0] = value[0] * std::numbers::log2e_v<float> - subtract;
    exp2_of_negative(value);
    sum += value[0];
    store(x + i, value[0]);
  }
  return sum_of(sum);
}

int64_t padded_to_eight(int64_t count) { return (count + 7) / 8 * 8; }

/// Scores become their exponentials. Returns 1 / their sum.
float softmax_weights(float* scores, int64_t count, float softcap) {
  if (softcap > 0)
    for (int64_t i = 0; i < count; ++i) scores[i] = softcap * std::tanh(scores[i] / softcap);
  const float most = *std::max_element(scores, scores + count);
  const int64_t padded = padded_to_eight(count);
  std::fill(scores + count, scores + padded, -std::numeric_limits<float>::infinity());
  return 1 / exponentials_of(scores, padded, most * std::numbers::log2e_v<float>);
}

const float* as_floats(const float* row, float*, int64_t) { return row; }
const float* as_floats(const uint16_t* row, float* wide, int64_t count) {
  widen_bfloat16(row, wide, count);
  return wide;
}

template <class Element>
void attend_to(const SeenKeys<Element>& seen, const float* queries, float* out, float* scratch) {
  const int64_t count = seen.count, dim = seen.head_dim, group = seen.group, stride = padded_to_eight(count);
  float *wide = scratch, *scores = scratch + padded_to_eight(dim);
  for (int64_t key = 0; key < count; ++key) {
    const float* row = as_floats(seen.keys + key * dim, wide, dim);
    for (int64_t g = 0; g < group; ++g) scores[g * stride + key] = dot(queries + g * dim, row, dim);
  }
  std::fill_n(out, group * dim, 0.0f);
  float* factors = scores + group * stride;
  for (int64_t g = 0; g < group; ++g) factors[g] = softmax_weights(scores + g * stride, count, seen.softcap);
  for (int64_t key = 0; key < count; ++key) {
    const float* row = as_floats(seen.values + key * dim, wide, dim);
    for (int64_t g = 0; g < group; ++g) add_scaled(out + g * dim, row, scores[g * stride + key] * factors[g], dim);
  }
}

}  // namespace

void arrange_for_bfloat16(const float* x, float* arranged, int64_t count) {
  int64_t i = 0;
  for (; i + width <= count; i += width)
    for (int64_t pair = 0; pair < 8; ++pair) {
      arranged[i + pair] = x[i + 2 * pair];
      arranged[i + 8 + pair] = x[i + 2 * pair + 1];
    }
  std::copy(x + i, x + count, arranged + i);
}

RUNNER_VECTOR_CLONES void product_of_rows(const float* weight, const float* x, float* y, int64_t rows, int64_t in,
                                          int64_t out, int64_t begin, int64_t end) {
  product(weight, x, y, rows, in, out, begin, end);
}

RUNNER_VECTOR_CLONES void product_of_rows(const uint16_t* weight, const float* x, float* y, int64_t rows, int64_t in,
                                          int64_t out, int64_t begin, int64_t end) {
  product(weight, x, y, rows, in, out, begin, end);
}

int64_t attend_scratch(int64_t count, int64_t head_dim, int64_t group) {
  return padded_to_eight(head_dim) + group * padded_to_eight(count) + group;
}

void attend(const SeenKeys<float>& seen, const float* queries, float* out, float* scratch) {
  attend_to(seen, queries, out, scratch);
}
void attend(const SeenKeys<uint16_t>& seen, const float* queries, float* out, float* scratch) {
  attend_to(seen, queries, out, scratch);
}

float rms_scale(const float* x, int64_t count, float eps) {
  return 1 / std::sqrt(dot(x, x, count) / static_cast<float>(count) + eps);
}

RUNNER_VECTOR_CLONES void scale_by(float* __restrict x, const float* __restrict factor, int64_t count, float scale) {
  for (int64_t i = 0; i < count; ++i) x[i] = x[i] * scale * factor[i];
}

RUNNER_VECTOR_CLONES void rotate_row(const float* __restrict x, const float* __restrict cos,
                                     const float* __restrict sin, int64_t half, float* __restrict to) {
  for (int64_t i = 0; i < half; ++i) {
    to[i] = x[i] * cos[i] - x[i + half] * sin[i];
    to[i + half] = x[i + half] * cos[i] + x[i] * sin[i];
  }
}

}  // namespace runner
