#include "runner/models/layer_norm_loops.hpp"

#include <cmath>
#include <vector>

#include "runner/base/bfloat16.hpp"
#include "runner/base/vector_clones.hpp"

namespace runner {

namespace {

struct Sums {
  float first = 0, second = 0;
};

RUNNER_VECTOR_CLONES float sum_of_row(const float* x, int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += x[i];
  return sum;
}

RUNNER_VECTOR_CLONES float squares_of_row(const float* x, int64_t count, float mean) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

RUNNER_VECTOR_CLONES void normalize(float* __restrict x, const float* __restrict weight, const float* __restrict bias,
                                    int64_t count, float mean, float scale) {
  for (int64_t i = 0; i < count; ++i) x[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

/// Adds the gradients of weight and bias. Replaces x by the normalized values and dy by dy weight, and returns the sums
/// of dy weight, and of its products with the normalized values.
RUNNER_VECTOR_CLONES Sums add_gradients(float* __restrict dy, float* __restrict x, int64_t count, float mean,
                                        float scale, const float* __restrict weight, float* __restrict weight_gradient,
                                        float* __restrict bias_gradient) {
  float first = 0, second = 0;
#pragma omp simd reduction(+ : first, second)
  for (int64_t i = 0; i < count; ++i) {
    float normed = (x[i] - mean) * scale;
    weight_gradient[i] += dy[i] * normed;
    bias_gradient[i] += dy[i];
    float weighted = dy[i] * weight[i];
    first += weighted;
    second += weighted * normed;
    dy[i] = weighted;
    x[i] = normed;
  }
  return {first, second};
}

RUNNER_VECTOR_CLONES void row_gradient(float* __restrict dy, const float* __restrict normed, int64_t count, float mean,
                                       float slope, float scale) {
  for (int64_t i = 0; i < count; ++i) dy[i] = (dy[i] - mean - normed[i] * slope) * scale;
}

}  // namespace

void layer_norm_rows(const uint16_t* x, int64_t rows, int64_t columns, const float* weight, const float* bias,
                     float eps, uint16_t* y, RowStatistics* statistics) {
  std::vector<float> row(static_cast<size_t>(columns));
  const std::vector<float> zeros(bias ? 0 : static_cast<size_t>(columns));
  const auto count = static_cast<float>(columns);
  for (int64_t r = 0; r < rows; ++r, x += columns, y += columns) {
    widen_bfloat16(x, row.data(), columns);
    const float mean = sum_of_row(row.data(), columns) / count;
    const float scale = 1 / std::sqrt(squares_of_row(row.data(), columns, mean) / count + eps);
    normalize(row.data(), weight, bias ? bias : zeros.data(), columns, mean, scale);
    narrow_bfloat16(row.data(), y, columns);
    statistics[r] = {mean, scale};
  }
}

void layer_norm_gradient_rows(const uint16_t* dy, const uint16_t* x, const RowStatistics* statistics, int64_t rows,
                              int64_t columns, const float* weight, uint16_t* dx, float* weight_gradient,
                              float* bias_gradient) {
  std::vector<float> gradient(static_cast<size_t>(columns)), row(static_cast<size_t>(columns));
  const auto count = static_cast<float>(columns);
  for (int64_t r = 0; r < rows; ++r, dy += columns, x += columns, dx += columns) {
    widen_bfloat16(dy, gradient.data(), columns);
    widen_bfloat16(x, row.data(), columns);
    const auto [mean, scale] = statistics[r];
    const Sums sums =
        add_gradients(gradient.data(), row.data(), columns, mean, scale, weight, weight_gradient, bias_gradient);
    row_gradient(gradient.data(), row.data(), columns, sums.first / count, sums.second / count, scale);
    narrow_bfloat16(gradient.data(), dx, columns);
  }
}

}  // namespace runner
