// Decoding in host memory: the operations of few tokens, as loops over memory (decode_loops.hpp). They are used in inference mode only,
// and have no gradients.
#pragma once
#include "runner/models/attention_form.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

class KeyValueCache;

/// Whether x is fp32 or bfloat16 in host memory, and nothing needs gradients.
bool decodes_on_host(const torch::Tensor& x);

/// Whether few_rows_product() takes these: at most product_rows_max rows x [N, in], and a contiguous weight of the same dtype.
bool few_rows(const torch::Tensor& x, const torch::Tensor& weight);
/// x W^T + bias as `dtype`, with fp32 sums. `bias` may be undefined.
torch::Tensor few_rows_product(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                               torch::ScalarType dtype);

/// RMSNorm of rows x [N, dim]. 16-bit values are rounded before they are multiplied by the weight; with `minus_one` they are
/// multiplied by 1 + weight in fp32.
torch::Tensor host_rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double eps, bool minus_one);

/// x [B, T, heads, head_dim] -> contiguous. cos and sin [positions, 1, rotary_dim / 2] of the dtype of x; positions [B, T], or
/// undefined: 0 to T - 1.
torch::Tensor host_rotate(const torch::Tensor& x, const torch::Tensor& cos, const torch::Tensor& sin,
                          const torch::Tensor& positions);

/// Attention of one query of each row to the columns of the cache. q [rows, 1, heads, head_dim], keys and values [rows, key heads,
/// columns, head_dim], -> [rows, heads * head_dim].
torch::Tensor decode_attention(const torch::Tensor& q, const torch::Tensor& keys, const torch::Tensor& values,
                               const KeyValueCache& cache, const AttentionForm& form);

}  // namespace runner
