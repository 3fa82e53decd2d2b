#include "runner/models/bfloat16_attention.hpp"

#include <ATen/native/CPUBlas.h>

#include <array>
#include <limits>

#include "runner/base/bfloat16.hpp"
#include "runner/base/error.hpp"
#include "runner/models/attention_heads.hpp"
#include "runner/models/bfloat16_attention_loops.hpp"
#include "strategies/contract/profiled.hpp"

namespace runner {

using torch::Tensor, torch::autograd::AutogradContext, torch::autograd::variable_list;

namespace amx {

namespace {

using Half = at::BFloat16;
using Inputs = AttentionInputs<Half>;
using Output = AttentionOutput<Half>;
using Gradients = AttentionGradients<Half>;
using Row = std::array<float, column_count>;

constexpr int64_t key_block = 256;  ///< keys of a block of scores
constexpr int64_t depth_unit = 32;  ///< the depth of a product is a multiple of this

/// Keys for which a block of scores has space.
int64_t block_keys(const AttentionShape& shape) { return std::min(key_block, round_up(shape.seq_len, depth_unit)); }

uint16_t* bits(Half* x) { return reinterpret_cast<uint16_t*>(x); }
const Half* halves(const uint32_t* pairs) { return reinterpret_cast<const Half*>(pairs); }

/// Product [rows, columns] of a [rows, depth] and of `pairs` [depth, columns], or its sum with c.
void product(bool add, int64_t rows, int64_t columns, int64_t depth, const Half* a, int64_t lda, const uint32_t* pairs,
             float* c, int64_t ldc) {
  at::native::cpublas::brgemm(rows, columns, depth, lda, columns, ldc, add, a, halves(pairs), c);
}

/// Rows of a head as the right-hand matrix of products. It is stored in groups of columns, as the products need.
class PairedRows {
 public:
  PairedRows(int64_t head_dim, Scratch& scratch)
      : dim_(head_dim),
        columns_(head_dim % 64 == 0 ? 64 : 32),
        data_(scratch.take<uint32_t>(column_count / 2 * head_dim)) {}

  void copy(HeadRows<Half> from, int64_t row, int64_t rows) {
    depth_ = round_up(rows, depth_unit);
    for (int64_t c = 0; c < dim_; c += columns_)
      pair_rows(bits(from[row]) + c, from.stride, rows, columns_, depth_, data_ + c * depth_ / 2);
  }
  /// c += a times these rows, for `rows` rows of a.
  void add_product(int64_t rows, const Half* a, float* c) const {
    for (int64_t column = 0; column < dim_; column += columns_)
      product(true, rows, columns_, depth_, a, column_count, data_ + column * depth_ / 2, c + column, dim_);
  }

 private:
  int64_t dim_, columns_, depth_ = 0;
  uint32_t* data_;
};

/// Rows of up to column_count queries, transposed, as the right-hand matrix of a product.
void pair_transposed(HeadRows<Half> from, int64_t row, int64_t rows, int64_t head_dim, uint32_t* to) {
  transpose_words(reinterpret_cast<const uint32_t*>(from[row]), from.stride / 2, rows, head_dim / 2, column_count, to,
                  column_count);
}

/// A head [T, head_dim], transposed, as the left-hand matrix of products. The last columns are zeros.
class TransposedHead {
 public:
  TransposedHead(const AttentionShape& shape, Scratch& scratch)
      : seq_len_(shape.seq_len),
        dim_(shape.head_dim),
        stride_(round_up(shape.seq_len, depth_unit)),
        pairs_(scratch.take<uint32_t>(stride_ / 2 * dim_)),
        data_(scratch.take<uint32_t>(stride_ / 2 * dim_)) {}

  void copy(HeadRows<Half> from) {
    pair_rows(bits(from.data), from.stride, seq_len_, dim_, stride_, pairs_);
    transpose_words(pairs_, dim_, stride_ / 2, dim_, stride_ / 2, data_, stride_ / 2);
  }
  /// to [head_dim, column_count] = columns [first, first + depth) times `pairs`, or the sum with `to`.
  void multiply(bool add, int64_t first, int64_t depth, const uint32_t* pairs, float* to) const {
    product(add, dim_, column_count, depth, halves(data_) + first, stride_, pairs, to, column_count);
  }

 private:
  int64_t seq_len_, dim_, stride_;
  uint32_t *pairs_, *data_;
};

/// Keys [key, key + rows) and the scores of column_count queries from `query` on.
struct Block {
  int64_t key, rows, query;
  int64_t padded() const { return round_up(rows, depth_unit); }
  /// Writes `value` to the rows after the last key.
  void pad(float* scores, float value) const {
    std::fill_n(scores + rows * column_count, (padded() - rows) * column_count, value);
  }
};

/// Calls body(Block) for the keys that the queries see.
template <class Body>
void for_each_block(const AttentionShape& shape, int64_t query, const Body& body) {
  const int64_t seen = std::min(shape.seq_len, query + column_count);
  for (int64_t key = 0; key < seen; key += key_block) body(Block{key, std::min(key_block, seen - key), query});
}

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

class Forward {
 public:
  Forward(const Inputs& inputs, const Output& output, Scratch& scratch)
      : in_(inputs),
        shape_(inputs.shape),
        out_(output),
        values_(shape_, scratch),
        queries_(scratch.take<uint32_t>(column_count * shape_.head_dim / 2)),
        scores_(scratch.take(block_keys(shape_) * column_count)),
        probabilities_(scratch.take<uint32_t>(block_keys(shape_) / 2 * column_count)),
        sums_(scratch.take(shape_.head_dim * column_count)) {}

  void operator()(const Sequence& sequence, int64_t key_head) {
    values_.copy(in_.v.at(sequence, key_head));
    for (int64_t member = 0; member < shape_.group(); ++member)
      for (int64_t query = 0; query < shape_.seq_len; query += column_count)
        columns(sequence, key_head, key_head * shape_.group() + member, query);
    at::native::cpublas::brgemm_release();
  }

 private:
  void columns(const Sequence& sequence, int64_t key_head, int64_t head, int64_t query) {
    const int64_t count = std::min(column_count, shape_.seq_len - query), dim = shape_.head_dim;
    const auto k = in_.k.at(sequence, key_head);
    pair_transposed(in_.q.at(sequence, head), query, count, dim, queries_);
    ColumnSoftmax state;
    std::fill_n(state.largest, column_count, minus_infinity);
    std::fill_n(state.sum, column_count, 0.0f);
    for_each_block(shape_, query, [&](const Block& block) {
      product(false, block.rows, column_count, dim, k[block.key], k.stride, queries_, scores_, column_count);
      block.pad(scores_, minus_infinity);
      Row rescale;
      softmax_columns({scores_, block.padded(), query - block.key, shape_.score_scale()}, state, probabilities_,
                      rescale.data());
      if (block.key > 0) scale_columns(sums_, dim, rescale.data());
      values_.multiply(block.key > 0, block.key, block.padded(), probabilities_, sums_);
    });
    float* log_sum_exp = out_.statistics(sequence, head) + query;
    Row normalize;
    for (int64_t c = 0; c < count; ++c) {
      normalize[static_cast<size_t>(c)] = 1 / state.sum[c];
      log_sum_exp[c] = state.largest[c] + std::log2(state.sum[c]);
    }
    const auto out = out_.rows.at(sequence, head);
    copy_transposed(sums_, count, dim, normalize.data(), bits(out[query]), out.stride);
  }

  const Inputs& in_;
  const AttentionShape& shape_;
  const Output& out_;
  TransposedHead values_;
  uint32_t* queries_;
  float* scores_;
  uint32_t* probabilities_;
  float* sums_;
};

class Backward {
 public:
  Backward(const Inputs& inputs, const Output& output, const Gradients& gradients, Scratch& scratch)
      : in_(inputs),
        shape_(inputs.shape),
        out_(output),
        gradients_(gradients),
        keys_(shape_, scratch),
        key_gradients_(scratch.take(shape_.seq_len * shape_.head_dim)),
        value_gradients_(scratch.take(shape_.seq_len * shape_.head_dim)),
        queries_(shape_.head_dim, scratch),
        row_gradients_(shape_.head_dim, scratch),
        transposed_queries_(scratch.take<uint32_t>(column_count * shape_.head_dim / 2)),
        transposed_gradients_(scratch.take<uint32_t>(column_count * shape_.head_dim / 2)),
        scores_(scratch.take(block_keys(shape_) * column_count)),
        probability_gradients_(scratch.take(block_keys(shape_) * column_count)),
        probabilities_(scratch.take<Half>(block_keys(shape_) * column_count)),
        score_gradients_(scratch.take<Half>(block_keys(shape_) * column_count)),
        paired_score_gradients_(scratch.take<uint32_t>(block_keys(shape_) / 2 * column_count)),
        query_gradients_(scratch.take(shape_.head_dim * column_count)) {}

  void operator()(const Sequence& sequence, int64_t key_head) {
    const int64_t elements = shape_.seq_len * shape_.head_dim;
    std::fill_n(key_gradients_, elements, 0.0f);
    std::fill_n(value_gradients_, elements, 0.0f);
    keys_.copy(in_.k.at(sequence, key_head));
    for (int64_t member = 0; member < shape_.group(); ++member)
      for (int64_t query = 0; query < shape_.seq_len; query += column_count)
        columns(sequence, key_head, key_head * shape_.group() + member, query);
    at::native::cpublas::brgemm_release();
    for (int64_t i = 0; i < elements; ++i) key_gradients_[i] *= shape_.scale();
    const auto dk = gradients_.k.at(sequence, key_head), dv = gradients_.v.at(sequence, key_head);
    for (int64_t row = 0; row < shape_.seq_len; ++row) {
      narrow_bfloat16(key_gradients_ + row * shape_.head_dim, bits(dk[row]), shape_.head_dim);
      narrow_bfloat16(value_gradients_ + row * shape_.head_dim, bits(dv[row]), shape_.head_dim);
    }
  }

 private:
  void columns(const Sequence& sequence, int64_t key_head, int64_t head, int64_t query) {
    const int64_t count = std::min(column_count, shape_.seq_len - query), dim = shape_.head_dim;
    const auto q = in_.q.at(sequence, head), gradient = gradients_.rows.at(sequence, head),
               out = out_.rows.at(sequence, head);
    pair_transposed(q, query, count, dim, transposed_queries_);
    pair_transposed(gradient, query, count, dim, transposed_gradients_);
    queries_.copy(q, query, count);
    row_gradients_.copy(gradient, query, count);
    // For columns after the last query, the products have zeros.
    Row log_sum_exp{}, dots{};
    std::copy_n(out_.statistics(sequence, head) + query, count, log_sum_exp.begin());
    row_dots(bits(gradient[query]), gradient.stride, bits(out[query]), out.stride, count, dim, dots.data());

    for_each_block(shape_, query, [&](const Block& block) { keys(sequence, key_head, block, log_sum_exp, dots); });
    Row scale;
    scale.fill(shape_.scale());
    const auto dq = gradients_.q.at(sequence, head);
    copy_transposed(query_gradients_, count, dim, scale.data(), bits(dq[query]), dq.stride);
  }

  /// Adds the gradients of a block of keys, and its part of the queries' gradients.
  void keys(const Sequence& sequence, int64_t key_head, const Block& block, const Row& log_sum_exp, const Row& dots) {
    const int64_t dim = shape_.head_dim;
    const auto k = in_.k.at(sequence, key_head), v = in_.v.at(sequence, key_head);
    product(false, block.rows, column_count, dim, k[block.key], k.stride, transposed_queries_, scores_, column_count);
    product(false, block.rows, column_count, dim, v[block.key], v.stride, transposed_gradients_, probability_gradients_,
            column_count);
    block.pad(scores_, minus_infinity);
    block.pad(probability_gradients_, 0);
    softmax_gradient_columns({scores_, block.padded(), block.query - block.key, shape_.score_scale()},
                             probability_gradients_, log_sum_exp.data(), dots.data(), bits(probabilities_),
                             bits(score_gradients_), paired_score_gradients_);
    row_gradients_.add_product(block.rows, probabilities_, value_gradients_ + block.key * dim);
    queries_.add_product(block.rows, score_gradients_, key_gradients_ + block.key * dim);
    keys_.multiply(block.key > 0, block.key, block.padded(), paired_score_gradients_, query_gradients_);
  }

  const Inputs& in_;
  const AttentionShape& shape_;
  const Output& out_;
  const Gradients& gradients_;
  TransposedHead keys_;
  float *key_gradients_, *value_gradients_;
  PairedRows queries_, row_gradients_;
  uint32_t *transposed_queries_, *transposed_gradients_;
  float *scores_, *probability_gradients_;
  Half *probabilities_, *score_gradients_;
  uint32_t* paired_score_gradients_;
  float* query_gradients_;
};

class Bfloat16Attention : public torch::autograd::Function<Bfloat16Attention> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const AttentionForm& form) {
    auto rows = at::empty({q.size(0) * q.size(1), q.size(2) * q.size(3)}, q.options());
    auto log_sum_exp = at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(torch::kFloat32));
    Inputs inputs(q, k, v, form);
    for_each_key_head<Forward>(inputs, Output(rows.view(q.sizes()), log_sum_exp));
    context->save_for_backward({q, k, v, rows, log_sum_exp});
    context->saved_data["scale"] = form.scale_for(q.size(3));
    return rows;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    auto gradient = gradients[0].contiguous().view(q.sizes());
    auto dq = at::empty(q.sizes(), q.options()), dk = at::empty(k.sizes(), k.options()), dv = at::empty_like(dk);
    Inputs inputs(q, k, v, {.scale = context->saved_data["scale"].toDouble()});
    Output output(saved[3].view(q.sizes()), saved[4]);
    for_each_key_head<Backward>(inputs, output,
                                Gradients{Heads<Half>(gradient), Heads<Half>(dq), Heads<Half>(dk), Heads<Half>(dv)});
    return {dq, dk, dv, Tensor()};
  }
};

/// Rows of words of 32 bits: adjacent elements, even strides.
Tensor with_words(const Tensor& x) {
  bool even = x.storage_offset() % 2 == 0 && x.stride(0) % 2 == 0 && x.stride(1) % 2 == 0 && x.stride(2) % 2 == 0;
  return x.stride(-1) == 1 && even ? x : x.contiguous();
}

}  // namespace

}  // namespace amx

bool bfloat16_attention_takes(const Tensor& q, const Tensor& k, const Tensor& v) {
  auto fits = [](const Tensor& x) {
    return on_host(x) && x.scalar_type() == torch::kBFloat16 && x.numel() > 0 && x.size(-1) % 32 == 0 &&
           x.size(-1) <= 256;
  };
  return fits(q) && fits(k) && fits(v) && k.sizes() == v.sizes() && k.size(0) == q.size(0) && k.size(1) == q.size(1) &&
         k.size(3) == q.size(3) && q.size(2) % k.size(2) == 0 && at::native::cpublas::could_pack(torch::kBFloat16);
}

Tensor bfloat16_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionForm& form) {
  RUNNER_CHECK(form.softcap == 0 && (form.window == 0 || form.window >= q.size(1)),
               "bfloat16_attention has no window and no soft cap");
  using amx::with_words;
  return amx::Bfloat16Attention::apply(with_words(q), with_words(k), with_words(v), form);
}

}  // namespace runner
