// The loops of LayerNorm (Ba et al. 2016, arXiv:1607.06450) over bfloat16 rows in host memory. Arithmetic is in fp32.
#pragma once
#include <cstdint>

namespace runner {

/// Mean and reciprocal deviation of one row.
struct RowStatistics {
  float mean, scale;
};

/// y = (x - mean) scale weight + bias for rows of `columns`. `bias` may be null.
void layer_norm_rows(const uint16_t* x, int64_t rows, int64_t columns, const float* weight, const float* bias,
                     float eps, uint16_t* y, RowStatistics* statistics);

/// The gradient of x from that of y. Adds those of weight and bias.
void layer_norm_gradient_rows(const uint16_t* dy, const uint16_t* x, const RowStatistics* statistics, int64_t rows,
                              int64_t columns, const float* weight, uint16_t* dx, float* weight_gradient,
                              float* bias_gradient);

}  // namespace runner
