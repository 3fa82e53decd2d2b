#include "runner/models/bfloat16_attention_loops.hpp"

#include <algorithm>
#include <limits>

#include "runner/base/float8.hpp"
#include "runner/base/vector_clones.hpp"

namespace runner {

namespace {

constexpr int64_t lanes = 8;
typedef uint16_t Half8 __attribute__((vector_size(16)));
typedef uint32_t Word8 __attribute__((vector_size(32)));
/// Two rows of 16 columns: four independent dependency chains.
constexpr int vectors = 4;
constexpr int64_t step = vectors / 2 * lanes;

RUNNER_VECTOR_INLINE Word8 load_words(const uint16_t* from) {
  Half8 x;
  __builtin_memcpy(&x, from, sizeof x);
  return __builtin_convertvector(x, Word8);
}

RUNNER_VECTOR_INLINE Float8 load_wide(const uint16_t* from) { return reinterpret_cast<Float8>(load_words(from) << 16); }

/// The bfloat16 nearest to x is in the upper half of each word.
RUNNER_VECTOR_INLINE Word8 rounded(const Float8& x) {
  Word8 bits = reinterpret_cast<Word8>(x);
  return bits + 0x7fff + ((bits >> 16) & 1);
}

RUNNER_VECTOR_INLINE void store_narrow(uint16_t* to, const Word8& word) {
  Half8 half = __builtin_convertvector(word >> 16, Half8);
  __builtin_memcpy(to, &half, sizeof half);
}

RUNNER_VECTOR_INLINE void store_pairs(uint32_t* to, const Word8& first, const Word8& second) {
  Word8 pairs = (first >> 16) | (second & 0xffff0000u);
  __builtin_memcpy(to, &pairs, sizeof pairs);
}

RUNNER_VECTOR_INLINE float total(const Float8& x) {
  float sum = 0;
  for (int i = 0; i < lanes; ++i) sum += x[i];
  return sum;
}

/// Columns of row r before this one do not see it.
int64_t masked_columns(const ScoreBlock& scores, int64_t row) {
  return std::clamp<int64_t>(row - scores.first_visible, 0, column_count);
}

RUNNER_VECTOR_INLINE void load_group(Float8 (&x)[vectors], const float* row) {
#pragma GCC unroll 4
  for (int i = 0; i < vectors; ++i) load(x[i], row + i / 2 * column_count + i % 2 * lanes);
}

}  // namespace

RUNNER_VECTOR_CLONES void pair_rows(const uint16_t* from, int64_t stride, int64_t rows, int64_t columns, int64_t padded,
                                    uint32_t* to) {
  for (int64_t r = 0; r < padded; r += 2, to += columns)
    for (int64_t c = 0; c < columns; c += lanes) {
      Word8 first{}, second{};
      if (r < rows) first = load_words(from + r * stride + c);
      if (r + 1 < rows) second = load_words(from + (r + 1) * stride + c);
      Word8 pairs = first | (second << 16);
      __builtin_memcpy(to + c, &pairs, sizeof pairs);
    }
}

RUNNER_VECTOR_CLONES void transpose_words(const uint32_t* from, int64_t stride, int64_t rows, int64_t columns,
                                          int64_t padded, uint32_t* to, int64_t to_stride) {
  const int64_t whole = rows / lanes * lanes;
  for (int64_t r = 0; r < whole; r += lanes)
    for (int64_t c = 0; c < columns; c += lanes)
      transpose_square(reinterpret_cast<const float*>(from + r * stride + c), stride,
                       reinterpret_cast<float*>(to + c * to_stride + r), to_stride);
  for (int64_t c = 0; c < columns && whole < padded; ++c)
    for (int64_t r = whole; r < padded; ++r) to[c * to_stride + r] = r < rows ? from[r * stride + c] : 0;
}

RUNNER_VECTOR_CLONES void copy_transposed(const float* from, int64_t rows, int64_t columns, const float* scale,
                                          uint16_t* to, int64_t to_stride) {
  float square[lanes * lanes];
  for (int64_t r = 0; r < rows; r += lanes)
    for (int64_t c = 0; c < columns; c += lanes) {
      transpose_square(from + c * column_count + r, column_count, square, lanes);
      for (int64_t i = 0; i < std::min(lanes, rows - r); ++i) {
        Float8 x;
        load(x, square + i * lanes);
        store_narrow(to + (r + i) * to_stride + c, rounded(x * scale[r + i]));
      }
    }
}

RUNNER_VECTOR_CLONES void row_dots(const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t b_stride,
                                   int64_t rows, int64_t columns, float* dots) {
  for (int64_t r = 0; r < rows; ++r, a += a_stride, b += b_stride) {
    Float8 sums{};
    for (int64_t c = 0; c < columns; c += lanes) sums += load_wide(a + c) * load_wide(b + c);
    dots[r] = total(sums);
  }
}

RUNNER_VECTOR_CLONES void softmax_columns(const ScoreBlock& scores, ColumnSoftmax& state, uint32_t* probabilities,
                                          float* rescale) {
  const int64_t rows = scores.rows;
  const float scale = scores.scale;
  float* data = scores.data;
  for (int64_t r = scores.first_visible + 1; r < rows; ++r)
    std::fill_n(data + r * column_count, masked_columns(scores, r), -std::numeric_limits<float>::infinity());
  for (int64_t c = 0; c < column_count; c += step) {
    Float8 largest[vectors], x[vectors], sums[vectors] = {};
    load_group(largest, data + c);
    for (int64_t r = 2; r < rows; r += 2) {
      load_group(x, data + r * column_count + c);
#pragma GCC unroll 4
      for (int i = 0; i < vectors; ++i) largest[i] = largest[i] > x[i] ? largest[i] : x[i];
    }
    Float8 now[2], change[2];
    for (int i = 0; i < 2; ++i) {
      Float8 before, most = (largest[i] > largest[i + 2] ? largest[i] : largest[i + 2]) * scale;
      load(before, state.largest + c + i * lanes);
      now[i] = before > most ? before : most;
      change[i] = before - now[i];
      store(state.largest + c + i * lanes, now[i]);
    }
    exp2_of_negative(change);
    for (int64_t r = 0; r < rows; r += 2) {
      load_group(x, data + r * column_count + c);
#pragma GCC unroll 4
      for (int i = 0; i < vectors; ++i) x[i] = x[i] * scale - now[i % 2];
      exp2_of_negative(x);
#pragma GCC unroll 4
      for (int i = 0; i < vectors; ++i) sums[i] += x[i];
      for (int i = 0; i < 2; ++i)
        store_pairs(probabilities + r / 2 * column_count + c + i * lanes, rounded(x[i]), rounded(x[i + 2]));
    }
    for (int i = 0; i < 2; ++i) {
      Float8 before;
      load(before, state.sum + c + i * lanes);
      store(state.sum + c + i * lanes, before * change[i] + (sums[i] + sums[i + 2]));
      store(rescale + c + i * lanes, change[i]);
    }
  }
}

RUNNER_VECTOR_CLONES void scale_columns(float* data, int64_t rows, const float* factors) {
  for (int64_t r = 0; r < rows; ++r, data += column_count)
    for (int64_t c = 0; c < column_count; c += lanes) {
      Float8 x, factor;
      load(x, data + c);
      load(factor, factors + c);
      store(data + c, x * factor);
    }
}

RUNNER_VECTOR_CLONES void softmax_gradient_columns(const ScoreBlock& scores, const float* probability_gradients,
                                                   const float* log_sum_exp, const float* dot, uint16_t* probabilities,
                                                   uint16_t* score_gradients, uint32_t* paired_score_gradients) {
  const int64_t rows = scores.rows;
  const float scale = scores.scale;
  for (int64_t r = scores.first_visible + 1; r < rows; ++r)
    std::fill_n(scores.data + r * column_count, masked_columns(scores, r), -std::numeric_limits<float>::infinity());
  for (int64_t c = 0; c < column_count; c += step) {
    Float8 subtract[2], mean[2];
    for (int i = 0; i < 2; ++i) {
      load(subtract[i], log_sum_exp + c + i * lanes);
      load(mean[i], dot + c + i * lanes);
    }
    for (int64_t r = 0; r < rows; r += 2) {
      const int64_t at = r * column_count + c;
      Float8 x[vectors], change[vectors];
      load_group(x, scores.data + at);
      load_group(change, probability_gradients + at);
#pragma GCC unroll 4
      for (int i = 0; i < vectors; ++i) x[i] = x[i] * scale - subtract[i % 2];
      exp2_of_negative(x);
      Word8 narrow[vectors];
#pragma GCC unroll 4
      for (int i = 0; i < vectors; ++i) {
        narrow[i] = rounded(x[i] * (change[i] - mean[i % 2]));
        store_narrow(score_gradients + at + i / 2 * column_count + i % 2 * lanes, narrow[i]);
        store_narrow(probabilities + at + i / 2 * column_count + i % 2 * lanes, rounded(x[i]));
      }
      for (int i = 0; i < 2; ++i)
        store_pairs(paired_score_gradients + r / 2 * column_count + c + i * lanes, narrow[i], narrow[i + 2]);
    }
  }
}

}  // namespace runner
