// Attention of queries to a part of the keys that they see, merged over the parts by the log-sum-exp of scores.
// Source: Milakov and Gimelshein 2018 (arXiv:1805.02867); Dao 2023 (FlashAttention-2, arXiv:2307.08691), section 3.1; Liu et al. 2023 (Ring
// Attention, arXiv:2310.01889), algorithm 1.
#pragma once
#include <vector>

#include "runner/models/attention_form.hpp"
#include "runner/models/dropout.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/context_axis.hpp"

namespace runner {

/// Queries of one sequence, in one row of a batch, or in all `rows` rows of it. They see keys from `begin` on.
struct QueryRun {
  int64_t row = 0, rows = 1;
  TokenSpan tokens;
  int64_t begin = 0;
};

/// The queries of a rank: those of `tokens` in `rows` rows, one run for each sequence. `positions` [rows, T] (on the host): those of the
/// tokens of packed rows in their sequences; undefined: each row is a sequence.
std::vector<QueryRun> query_runs(const std::vector<TokenSpan>& tokens, int64_t rows, const torch::Tensor& positions);

/// The facts that all parts have in common.
struct PartialForm {
  AttentionForm form = {};
  PlacedDropout dropout = {};  ///< of probabilities [B, heads, queries, keys]
  int64_t row_tokens = 0;      ///< tokens of a row, without padding
  std::vector<QueryRun> runs = {};
};

/// softmax(scale Q K^T) V, summed over keys that arrive in parts. q [B, queries, H, head_dim]; keys and values of a part
/// [B, tokens, KV, head_dim], whose places in the rows `tokens` names. The first part has the keys at the places of the queries.
///
/// ATen's fused kernel computes parts on CPUs, and those of 16-bit values on CUDA. Windows that are shorter than the rows, soft caps and
/// dropout are computed in single operations in tiles of attention_tile queries (with dropout, of all queries of a run). Sums are in fp32,
/// or fp64 for fp64.
class PartialAttention {
 public:
  /// `q` and `form` must outlive this object.
  PartialAttention(const torch::Tensor& q, const PartialForm& form);
  void add(const torch::Tensor& k, const torch::Tensor& v, const std::vector<TokenSpan>& tokens);
  /// The result [B * queries, H * head_dim], in the dtype of q.
  torch::Tensor rows() const;
  /// [B, H, queries] in fp32 or fp64.
  const torch::Tensor& log_sum_exp() const { return log_sum_exp_; }

 private:
  const torch::Tensor& q_;
  const PartialForm& form_;
  torch::Tensor sum_, log_sum_exp_;
};

/// The backward. `gradient` and `rows` [B * queries, H * head_dim].
class PartialAttentionBackward {
 public:
  PartialAttentionBackward(const torch::Tensor& q, const torch::Tensor& rows, const torch::Tensor& log_sum_exp,
                           const torch::Tensor& gradient, const PartialForm& form);
  /// Adds the gradients of keys and values to dk and dv, which are in the dtype of sums.
  void add(const torch::Tensor& k, const torch::Tensor& v, const std::vector<TokenSpan>& tokens,
           const torch::Tensor& dk, const torch::Tensor& dv);
  torch::Tensor dq() const { return dq_.to(q_.scalar_type()); }

 private:
  const torch::Tensor &q_, &log_sum_exp_;
  const PartialForm& form_;
  torch::Tensor rows_, gradient_, dots_, dq_;
};

}  // namespace runner
