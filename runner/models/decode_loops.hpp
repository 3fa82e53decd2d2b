// The loops of decoding in host memory: products of few rows with matrices, attention of one query, norms and rotations. All arithmetic
// is fp32; matrices, keys and values may be bfloat16 (uint16_t). Decoding reads each weight once, so memory limits its speed.
#pragma once
#include <cstdint>

namespace runner {

/// The most rows that a product takes at a time.
constexpr int64_t product_rows_max = 4;

/// Arranges a row of x for products with bfloat16 weights: of each 16 elements, first those of even index, then the others.
void arrange_for_bfloat16(const float* x, float* arranged, int64_t count);

/// y[r * out + o] = sum over i of weight[o * in + i] x[r * in + i], for o in [begin, end) and r < rows <= product_rows_max.
void product_of_rows(const float* weight, const float* x, float* y, int64_t rows, int64_t in, int64_t out,
                     int64_t begin, int64_t end);
/// The product with bfloat16 weights; the rows of x are arranged.
void product_of_rows(const uint16_t* weight, const float* x, float* y, int64_t rows, int64_t in, int64_t out,
                     int64_t begin, int64_t end);

/// Queries [group, head_dim], scaled, that all see `count` keys and values [count, head_dim].
template <class Element>
struct SeenKeys {
  const Element *keys, *values;
  int64_t count, head_dim, group;
  float softcap;  ///< 0: none
};
/// The number of floats that attend() uses as scratch.
int64_t attend_scratch(int64_t count, int64_t head_dim, int64_t group);
/// out [group, head_dim] = softmax(queries keys^T) values.
void attend(const SeenKeys<float>& seen, const float* queries, float* out, float* scratch);
void attend(const SeenKeys<uint16_t>& seen, const float* queries, float* out, float* scratch);

/// 1 / sqrt(mean(x^2) + eps).
float rms_scale(const float* x, int64_t count, float eps);
/// x = x * scale * factor.
void scale_by(float* x, const float* factor, int64_t count, float scale);

/// (a, b) -> (a cos - b sin, b cos + a sin) for the `half` pairs (x[i], x[i + half]).
void rotate_row(const float* x, const float* cos, const float* sin, int64_t half, float* to);

}  // namespace runner
