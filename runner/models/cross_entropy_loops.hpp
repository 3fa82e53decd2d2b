// The loop of the cross entropy over bfloat16 logits in host memory.
#pragma once
#include <cstdint>

namespace runner {

/// For each of `rows` rows of `columns` logits: its cross entropy with the target goes to `losses`, and its gradient,
/// softmax - onehot, overwrites the logits. Arithmetic is in fp32. For a target of `ignored`, loss and gradient are 0.
void cross_entropy_rows(uint16_t* logits, int64_t rows, int64_t columns, const int64_t* targets, int64_t ignored,
                        float* losses);

}  // namespace runner
