#include "runner/models/cross_entropy_loops.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "runner/base/bfloat16.hpp"
#include "runner/base/float8.hpp"
#include "runner/base/vector_clones.hpp"

namespace runner {

namespace {

constexpr int64_t lanes = 8;
constexpr int vectors = 4;
/// Logits that are converted at a time. Their fp32 values fit in the first-level cache.
constexpr int64_t piece = 2048;
static_assert(piece % (vectors * lanes) == 0);
using Piece = std::array<float, piece>;

/// Calls body(first, padded count) with columns in fp32, to base 2. Columns after the last one are -infinity.
template <class Body>
void for_each_piece(const uint16_t* logits, int64_t columns, Piece& wide, const Body& body) {
  for (int64_t first = 0; first < columns; first += piece) {
    const int64_t count = std::min(piece, columns - first),
                  padded = (count + vectors * lanes - 1) / (vectors * lanes) * (vectors * lanes);
    widen_bfloat16(logits + first, wide.data(), count);
    std::fill(wide.begin() + count, wide.begin() + padded, -std::numeric_limits<float>::infinity());
    body(first, padded);
  }
}

RUNNER_VECTOR_CLONES float largest_of(const float* x, int64_t count) {
  Float8 largest[vectors];
  for (int i = 0; i < vectors; ++i) load(largest[i], x + i * lanes);
  for (int64_t c = vectors * lanes; c < count; c += vectors * lanes)
#pragma GCC unroll 4
    for (int i = 0; i < vectors; ++i) {
      Float8 value;
      load(value, x + c + i * lanes);
      largest[i] = largest[i] > value ? largest[i] : value;
    }
  float most = largest[0][0];
  for (int i = 0; i < vectors * lanes; ++i) most = std::max(most, largest[i / lanes][i % lanes]);
  return most;
}

/// x = 2^(x log2(e) - subtract). Returns the sum.
RUNNER_VECTOR_CLONES float exponentials(float* x, int64_t count, float subtract) {
  Float8 sums[vectors] = {};
  for (int64_t c = 0; c < count; c += vectors * lanes) {
    Float8 value[vectors];
#pragma GCC unroll 4
    for (int i = 0; i < vectors; ++i) {
      load(value[i], x + c + i * lanes);
      value[i] = value[i] * std::numbers::log2e_v<float> - subtract;
    }
    exp2_of_negative(value);
#pragma GCC unroll 4
    for (int i = 0; i < vectors; ++i) {
      sums[i] += value[i];
      store(x + c + i * lanes, value[i]);
    }
  }
  float sum = 0;
  for (int i = 0; i < vectors * lanes; ++i) sum += sums[i / lanes][i % lanes];
  return sum;
}

float widened(uint16_t x) {
  float wide;
  widen_bfloat16(&x, &wide, 1);
  return wide;
}

/// To base 2: the largest logit, and the sum of 2^(logit - largest).
struct RowSum {
  float largest, sum;
};

RowSum row_sum(const uint16_t* logits, int64_t columns, Piece& wide) {
  RowSum row{.largest = -std::numeric_limits<float>::infinity(), .sum = 0};
  for_each_piece(logits, columns, wide,
                 [&](int64_t, int64_t count) { row.largest = std::max(row.largest, largest_of(wide.data(), count)); });
  row.largest *= std::numbers::log2e_v<float>;
  for_each_piece(logits, columns, wide,
                 [&](int64_t, int64_t count) { row.sum += exponentials(wide.data(), count, row.largest); });
  return row;
}

/// `log_sum`: to base 2. A target outside of the columns changes nothing.
void write_gradient(uint16_t* logits, int64_t columns, int64_t target, float log_sum, Piece& wide) {
  for_each_piece(logits, columns, wide, [&](int64_t first, int64_t count) {
    exponentials(wide.data(), count, log_sum);
    if (target >= first && target < first + piece) wide[static_cast<size_t>(target - first)] -= 1;
    narrow_bfloat16(wide.data(), logits + first, std::min(piece, columns - first));
  });
}

float one_row(uint16_t* logits, int64_t columns, int64_t target, Piece& wide) {
  const auto [largest, sum] = row_sum(logits, columns, wide);
  const float log_sum = largest + std::log2(sum);
  const float loss = log_sum * std::numbers::ln2_v<float> - widened(logits[target]);
  write_gradient(logits, columns, target, log_sum, wide);
  return loss;
}

}  // namespace

void cross_entropy_rows(uint16_t* logits, int64_t rows, int64_t columns, const int64_t* targets, int64_t ignored,
                        float* losses) {
  Piece wide;
  for (int64_t row = 0; row < rows; ++row, logits += columns) {
    losses[row] = 0;
    if (targets[row] == ignored)
      std::fill_n(logits, columns, uint16_t{0});
    else
      losses[row] = one_row(logits, columns, targets[row], wide);
  }
}

void softmax_sums(const uint16_t* logits, int64_t rows, int64_t columns, float* largest, float* sums) {
  Piece wide;
  for (int64_t row = 0; row < rows; ++row) {
    const auto of_row = row_sum(logits + row * columns, columns, wide);
    largest[row] = of_row.largest * std::numbers::ln2_v<float>;
    sums[row] = of_row.sum;
  }
}

void softmax_gradients(uint16_t* logits, int64_t rows, int64_t columns, const int64_t* targets, const float* log_sums) {
  Piece wide;
  for (int64_t row = 0; row < rows; ++row)
    write_gradient(logits + row * columns, columns, targets[row], log_sums[row] * std::numbers::log2e_v<float>, wide);
}

}  // namespace runner
