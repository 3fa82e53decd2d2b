// The loop of the cross entropy over bfloat16 logits in host memory.
#pragma once
#include <cstdint>

namespace runner {

/// For each of `rows` rows of `columns` logits: its cross entropy with the target goes to `losses`, and its gradient,
/// softmax - onehot, overwrites the logits. Arithmetic is in fp32. For a target of `ignored`, loss and gradient are 0.
void cross_entropy_rows(uint16_t* logits, int64_t rows, int64_t columns, const int64_t* targets, int64_t ignored,
                        float* losses);

/// The first of two steps that replace cross_entropy_rows() if the columns are a part of the logits: the largest logit of each row, and
/// the sum of exp(logit - largest).
void softmax_sums(const uint16_t* logits, int64_t rows, int64_t columns, float* largest, float* sums);
/// The second step: the logits are overwritten by exp(logit - log_sum), minus 1 for the target; -1: it is not among the columns.
void softmax_gradients(uint16_t* logits, int64_t rows, int64_t columns, const int64_t* targets, const float* log_sums);

}  // namespace runner
