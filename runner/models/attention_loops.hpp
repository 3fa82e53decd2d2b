// The loops of host_attention except its products: packing, softmax and its gradient, over tiles of tile_rows queries.
#pragma once
#include <cstdint>

namespace runner {

/// to(r, c) = scale * from(r, c) for c < columns, and 0 up to `padded`.
void copy_rows(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float scale, float* to,
               int64_t to_stride, int64_t padded);

/// Prefetches rows that are copied later. The hardware does not predict accesses to rows of strided views.
void prefetch_rows(const float* from, int64_t stride, int64_t rows, int64_t columns);

/// Transposes from [rows, columns] in groups of tile_columns rows: element (r, c) goes to to[(r / tile_columns *
/// columns + c) * tile_columns + r % tile_columns]. The last group is padded with zeros.
void pack_transposed(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to);

/// The scores of a tile of queries and a block of keys, or values computed from them. Row r attends to keys before
/// min(keys, first_visible + r), first_visible > 0, and if `windowed` only to those from first_seen + r on. `columns` are
/// computed: the visible keys of the last row, rounded up to tile_columns.
struct ScoreTile {
  float* data;
  int64_t stride, columns, keys, first_visible;
  bool windowed = false;
  int64_t first_seen = 0;
};

/// State of the softmax of one query row after some blocks of keys.
struct RunningSoftmax {
  float largest, sum;
};

/// Replaces scores by 2^(score - largest), and by 0 where masked. `rescale`: factor for the results of earlier blocks.
void softmax_tile(const ScoreTile& scores, RunningSoftmax* rows, float* rescale);

/// Replaces scores by probabilities 2^(score - log_sum_exp), and probability gradients dP by score gradients P (dP -
/// dot), where dot = sum P dP over all keys of the row. Both are 0 where masked. Padding rows, from `rows` on, must
/// have scores and dP of 0; their log-sum-exp and dot count as 0.
void softmax_gradient_tile(const ScoreTile& scores, float* probability_gradients, int64_t rows,
                           const float* log_sum_exp, const float* dot);

/// to = (to * keep[r] + tile) * scale[r]. If `first`, `to` is not used as input.
void merge_tile(float* to, int64_t to_stride, int64_t rows, int64_t columns, const float* tile, int64_t tile_stride,
                bool first, const float* keep, const float* scale);

/// dots[r] = sum over c of a(r, c) b(r, c).
void row_dots(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows, int64_t columns,
              float* dots);

}  // namespace runner
