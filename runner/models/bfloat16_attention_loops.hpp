// The loops of bfloat16_attention except its products: copies in the layouts of the products, softmax and its gradient.
//
// Scores are transposed: one row for each key, one column for each of column_count queries. So a query's softmax needs no
// sum within a vector. The right-hand matrix of a product stores pairs of rows: a 32-bit word has element (2 r, c) in its
// lower half and (2 r + 1, c) in its upper half.
#pragma once
#include <cstdint>

namespace runner {

/// Queries of a block of scores.
constexpr int64_t column_count = 64;

/// Word (r, c) of `to`, which has no gaps, is elements (2 r, c) and (2 r + 1, c) of `from`, for c < columns, a multiple
/// of 8. Rows from `rows` to `padded`, an even number, are zeros.
void pair_rows(const uint16_t* from, int64_t stride, int64_t rows, int64_t columns, int64_t padded, uint32_t* to);

/// to(c, r) = from(r, c) for r < rows and c < columns, a multiple of 8. Columns of `to` from `rows` to `padded` are
/// zeros.
void transpose_words(const uint32_t* from, int64_t stride, int64_t rows, int64_t columns, int64_t padded, uint32_t* to,
                     int64_t to_stride);

/// to(r, c) = from(c, r) scale[r], rounded. `from` has rows of column_count. `columns` is a multiple of 8.
/// rows <= column_count.
void copy_transposed(const float* from, int64_t rows, int64_t columns, const float* scale, uint16_t* to,
                     int64_t to_stride);

/// dots[r] = sum over c of a(r, c) b(r, c). `columns` is a multiple of 8.
void row_dots(const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t b_stride, int64_t rows, int64_t columns,
              float* dots);

/// Scores of a block of keys. Column c sees rows up to c + first_visible, first_visible >= 0. Rows are even; those
/// after the last key are -infinity.
struct ScoreBlock {
  float* data;
  int64_t rows, first_visible;
  float scale;  ///< makes scores to base 2
};

/// State of the softmax of each column after some blocks of keys.
struct ColumnSoftmax {
  float largest[column_count], sum[column_count];
};

/// Writes probabilities 2^(score - largest), in pairs of rows. `rescale`: factors for the results of earlier blocks.
void softmax_columns(const ScoreBlock& scores, ColumnSoftmax& state, uint32_t* probabilities, float* rescale);

/// Row r of `data`, which has rows of column_count, is multiplied by factors, element by element.
void scale_columns(float* data, int64_t rows, const float* factors);

/// Probabilities P = 2^(score - log_sum_exp) and score gradients dS = P (dP - dot), where dot = sum P dP over all keys
/// of the column. They are 0 where masked. dS is also written in pairs of rows.
void softmax_gradient_columns(const ScoreBlock& scores, const float* probability_gradients, const float* log_sum_exp,
                              const float* dot, uint16_t* probabilities, uint16_t* score_gradients,
                              uint32_t* paired_score_gradients);

}  // namespace runner
