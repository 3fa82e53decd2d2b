// The loops of host_attention beside its products: packing, softmax and its gradient, over tiles of tile_rows queries.
#pragma once
#include <cstdint>

namespace runner {

/// to(r, c) = scale * from(r, c) for c < columns, and 0 up to `padded`.
void copy_rows(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float scale, float* to,
               int64_t to_stride, int64_t padded);

/// Asks for rows that are copied later; those of strided views are no sequence that the processor foresees.
void prefetch_rows(const float* from, int64_t stride, int64_t rows, int64_t columns);

/// The transpose of from [rows, columns] in groups of tile_columns rows: element (r, c) goes to
/// to[(r / tile_columns * columns + c) * tile_columns + r % tile_columns]; the last group is filled up with zeros.
void pack_transposed(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to);

/// The scores of a tile of queries against a block of keys, or what has taken their place. Row r sees the keys before
/// min(keys, first_visible + r), first_visible > 0; `columns` are computed, what the last row sees rounded up to
/// tile_columns.
struct ScoreTile {
  float* data;
  int64_t stride, columns, keys, first_visible;
};

/// What one row of queries knows of its softmax after some blocks of keys.
struct RunningSoftmax {
  float largest, sum;
};

/// Scores become 2^(score - largest), and 0 where masked; `rescale` is what earlier blocks' results are to be
/// multiplied with.
void softmax_tile(const ScoreTile& scores, RunningSoftmax* rows, float* rescale);

/// Scores become probabilities 2^(score - log_sum_exp), and probability gradients dP become those of the scores,
/// P (dP - dot), where dot = sum P dP over the whole row. Both are 0 where masked. Rows from `rows` on have scores and
/// dP of 0, and take a log-sum-exp and a dot of 0.
void softmax_gradient_tile(const ScoreTile& scores, float* probability_gradients, int64_t rows,
                           const float* log_sum_exp, const float* dot);

/// to = (to * keep[r] + tile) * scale[r]; what stood in `to` is not read where `first`.
void merge_tile(float* to, int64_t to_stride, int64_t rows, int64_t columns, const float* tile, int64_t tile_stride,
                bool first, const float* keep, const float* scale);

/// dots[r] = sum over c of a(r, c) b(r, c).
void row_dots(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows, int64_t columns,
              float* dots);

}  // namespace runner
