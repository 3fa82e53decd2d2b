#include "runner/models/host_attention.hpp"

#include <array>
#include <limits>

#include "runner/base/error.hpp"
#include "runner/models/attention_heads.hpp"
#include "runner/models/attention_loops.hpp"
#include "runner/models/tile_product.hpp"
#include "strategies/contract/profiled.hpp"

namespace runner {

using torch::Tensor, torch::autograd::AutogradContext, torch::autograd::variable_list;

namespace {

using TileRow = std::array<float, tile_rows>;
constexpr TileRow ones{1, 1, 1, 1, 1, 1};
/// Blocks begin at multiples of both dimensions of a tile.
constexpr int64_t block_unit = 48;

using Shape = AttentionShape;
using Inputs = AttentionInputs<float>;
using Output = AttentionOutput<float>;
using Gradients = AttentionGradients<float>;

int64_t padded_dim(const Shape& shape) { return round_up(shape.head_dim, tile_columns); }

/// Size of a block of about `keys` keys: a multiple of block_unit, or all keys rounded up to tiles.
int64_t key_block(const Shape& shape, int64_t keys, int64_t most) {
  int64_t block = std::clamp(keys / block_unit * block_unit, block_unit, most);
  return std::min(block, round_up(round_up(shape.seq_len, tile_rows), tile_columns));
}

/// The first key of the first block that a tile or block of queries from `row` on attends to.
int64_t first_block(const Shape& shape, int64_t row, int64_t block) { return shape.first_key(row) / block * block; }

class Forward {
 public:
  Forward(const Inputs& inputs, const Output& output, Scratch& scratch)
      : in_(inputs),
        shape_(inputs.shape),
        out_(output),
        padded_(padded_dim(shape_)),
        block_(key_block(shape_, 32768 / padded_, 10 * block_unit)),
        keys_(scratch.take(block_ * shape_.head_dim)),
        values_(scratch.take(block_ * padded_)),
        queries_(scratch.take(tile_rows * padded_)),
        scores_(scratch.take(tile_rows * block_)),
        sums_(scratch.take(tile_rows * padded_)),
        states_(
            reinterpret_cast<RunningSoftmax*>(scratch.take(2 * shape_.group() * round_up(shape_.seq_len, tile_rows)))) {
  }

  void operator()(const Sequence& sequence, int64_t key_head) {
    shape_ = in_.shape.of_length(sequence.length);
    auto k = in_.k.at(sequence, key_head), v = in_.v.at(sequence, key_head);
    for (int64_t key = 0; key < shape_.seq_len; key += block_) {
      int64_t keys = std::min(block_, shape_.seq_len - key);
      pack_transposed(k[key], k.stride, keys, shape_.head_dim, keys_);
      copy_rows(v[key], v.stride, keys, shape_.head_dim, 1, values_, padded_, padded_);
      for (int64_t member = 0; member < shape_.group(); ++member)
        for (int64_t row = key; row < shape_.queries_end(key + keys); row += tile_rows)
          query_tile(sequence, key_head * shape_.group() + member, row, key, keys,
                     states_ + member * round_up(shape_.seq_len, tile_rows) + row);
    }
  }

 private:
  void query_tile(const Sequence& sequence, int64_t head, int64_t row, int64_t key, int64_t keys,
                  RunningSoftmax* states) {
    int64_t rows = std::min(tile_rows, shape_.seq_len - row), seen = std::min(keys, row - key + tile_rows);
    auto q = in_.q.at(sequence, head), out = out_.rows.at(sequence, head);
    HeadRows<float> tile{q[row], q.stride};
    if (rows < tile_rows) {
      std::fill_n(queries_, tile_rows * padded_, 0.0f);
      copy_rows(q[row], q.stride, rows, shape_.head_dim, 1, queries_, padded_, padded_);
      tile = {queries_, padded_};
    }
    const bool first = key == first_block(shape_, row, block_);
    if (first) std::fill_n(states, tile_rows, RunningSoftmax{-std::numeric_limits<float>::infinity(), 0});

    int64_t later = row + tile_rows;
    prefetch_rows(q[later], q.stride, std::min(tile_rows, shape_.seq_len - later), shape_.head_dim);
    ScoreTile scores{scores_,
                     block_,
                     round_up(seen, tile_columns),
                     keys,
                     row - key + 1,
                     shape_.windowed(),
                     row - shape_.window + 1 - key};
    tile_product(tile.data, tile.stride, {keys_, shape_.head_dim * tile_columns, tile_columns}, shape_.head_dim,
                 shape_.score_scale(), scores_, block_, scores.columns);
    TileRow rescale, normalize = ones;
    softmax_tile(scores, states, rescale.data());
    tile_product(scores_, block_, {values_, tile_columns, padded_}, seen, 1, sums_, padded_, padded_);
    if (row < key + block_) finish(sequence, head, row, rows, states, normalize);
    merge_tile(out[row], out.stride, rows, shape_.head_dim, sums_, padded_, first, rescale.data(), normalize.data());
  }

  void finish(const Sequence& sequence, int64_t head, int64_t row, int64_t rows, const RunningSoftmax* states,
              TileRow& normalize) {
    float* log_sum_exp = out_.statistics(sequence, head) + row;
    for (int64_t r = 0; r < rows; ++r) {
      normalize[static_cast<size_t>(r)] = 1 / states[r].sum;
      log_sum_exp[r] = states[r].largest + std::log2(states[r].sum);
    }
  }

  const Inputs& in_;
  Shape shape_;  ///< of the current sequence; the scratch memory is for the longest possible
  const Output& out_;
  int64_t padded_, block_;
  float *keys_, *values_, *queries_, *scores_, *sums_;
  RunningSoftmax* states_;
};

class Backward {
 public:
  Backward(const Inputs& inputs, const Output& output, const Gradients& gradients, Scratch& scratch)
      : in_(inputs),
        shape_(inputs.shape),
        out_(output),
        gradients_(gradients),
        padded_(padded_dim(shape_)),
        block_(key_block(shape_, 12288 / padded_, 4 * block_unit)),
        query_block_(std::min(block_unit, round_up(shape_.seq_len, tile_rows))),
        keys_transposed_(scratch.take(block_ * shape_.head_dim)),
        values_transposed_(scratch.take(block_ * shape_.head_dim)),
        keys_(scratch.take(block_ * padded_)),
        key_gradients_(scratch.take(block_ * padded_)),
        value_gradients_(scratch.take(block_ * padded_)),
        queries_(scratch.take(query_block_ * padded_)),
        row_gradients_(scratch.take(query_block_ * padded_)),
        query_gradients_(scratch.take(tile_rows * padded_)),
        probabilities_(scratch.take(query_block_ * block_)),
        score_gradients_(scratch.take(query_block_ * block_)),
        dots_(scratch.take(shape_.group() * shape_.seq_len)) {}

  void operator()(const Sequence& sequence, int64_t key_head) {
    shape_ = in_.shape.of_length(sequence.length);
    for (int64_t member = 0; member < shape_.group(); ++member) {  // sum P dP over a row equals dO . O
      int64_t head = key_head * shape_.group() + member;
      auto gradient = gradients_.rows.at(sequence, head), out = out_.rows.at(sequence, head);
      row_dots(gradient.data, gradient.stride, out.data, out.stride, shape_.seq_len, shape_.head_dim,
               dots_ + member * shape_.seq_len);
    }
    for (int64_t key = 0; key < shape_.seq_len; key += block_) {
      begin_keys(sequence, key_head, key);
      for (int64_t member = 0; member < shape_.group(); ++member)
        for (int64_t row = key; row < shape_.queries_end(key + key_count_); row += query_block_)
          query_rows(sequence, key_head * shape_.group() + member, row, dots_ + member * shape_.seq_len + row);
      auto dk = gradients_.k.at(sequence, key_head), dv = gradients_.v.at(sequence, key_head);
      copy_rows(key_gradients_, padded_, key_count_, shape_.head_dim, std::numbers::ln2_v<float>, dk[key], dk.stride,
                shape_.head_dim);
      copy_rows(value_gradients_, padded_, key_count_, shape_.head_dim, 1, dv[key], dv.stride, shape_.head_dim);
    }
  }

 private:
  void begin_keys(const Sequence& sequence, int64_t key_head, int64_t key) {
    auto k = in_.k.at(sequence, key_head), v = in_.v.at(sequence, key_head);
    key_ = key;
    key_count_ = std::min(block_, shape_.seq_len - key);
    pack_transposed(k[key], k.stride, key_count_, shape_.head_dim, keys_transposed_);
    pack_transposed(v[key], v.stride, key_count_, shape_.head_dim, values_transposed_);
    copy_rows(k[key], k.stride, key_count_, shape_.head_dim, 1, keys_, padded_, padded_);
    std::fill_n(key_gradients_, block_ * padded_, 0.0f);
    std::fill_n(value_gradients_, block_ * padded_, 0.0f);
  }

  /// Processes a block of queries with the current block of keys.
  void query_rows(const Sequence& sequence, int64_t head, int64_t row, const float* dots) {
    int64_t rows = std::min(query_block_, shape_.seq_len - row), filled = round_up(rows, tile_rows);
    auto q = in_.q.at(sequence, head), gradient = gradients_.rows.at(sequence, head);
    copy_rows(q[row], q.stride, rows, shape_.head_dim, shape_.score_scale(), queries_, padded_, padded_);
    copy_rows(gradient[row], gradient.stride, rows, shape_.head_dim, 1, row_gradients_, padded_, padded_);
    std::fill_n(queries_ + rows * padded_, (filled - rows) * padded_, 0.0f);
    std::fill_n(row_gradients_ + rows * padded_, (filled - rows) * padded_, 0.0f);
    for (int64_t r = 0; r < rows; r += tile_rows) {
      int64_t later = row + query_block_ + r;
      prefetch_rows(q[later], q.stride, std::min(tile_rows, shape_.seq_len - later), shape_.head_dim);
      query_tile(sequence, head, row, r, dots + r);
    }
    add_to_keys(probabilities_, row_gradients_, row, filled, value_gradients_);
    add_to_keys(score_gradients_, queries_, row, filled, key_gradients_);
  }

  /// keys += weights^T queries, starting at the first row that attends to a key of the tile. Weights after the last key
  /// are undefined, and affect only padding rows of `keys`, which are not read.
  void add_to_keys(const float* weights, const float* queries, int64_t row, int64_t rows, float* keys) {
    for (int64_t column = 0; column < key_count_; column += tile_rows) {
      int64_t first = std::max<int64_t>(0, key_ + column - row);
      if (first >= rows) break;
      add_transposed_tile_product(weights + first * block_ + column, block_,
                                  {queries + first * padded_, tile_columns, padded_}, rows - first,
                                  keys + column * padded_, padded_, padded_);
    }
  }

  /// For the tile at row + r: computes probabilities and score gradients, and from them the query gradients.
  void query_tile(const Sequence& sequence, int64_t head, int64_t row, int64_t r, const float* dots) {
    int64_t dim = shape_.head_dim, group_stride = dim * tile_columns;
    int64_t rows = std::min(tile_rows, shape_.seq_len - row - r);
    int64_t seen = std::min(key_count_, row + r - key_ + tile_rows), columns = round_up(seen, tile_columns);
    float *p = probabilities_ + r * block_, *ds = score_gradients_ + r * block_;
    tile_product(queries_ + r * padded_, padded_, {keys_transposed_, group_stride, tile_columns}, dim, 1, p, block_,
                 columns);
    tile_product(row_gradients_ + r * padded_, padded_, {values_transposed_, group_stride, tile_columns}, dim, 1, ds,
                 block_, columns);
    const float* log_sum_exp = out_.statistics(sequence, head) + row + r;
    softmax_gradient_tile(
        {p, block_, columns, key_count_, row + r - key_ + 1, shape_.windowed(), row + r - shape_.window + 1 - key_}, ds,
        rows, log_sum_exp, dots);
    tile_product(ds, block_, {keys_, tile_columns, padded_}, seen, shape_.scale(), query_gradients_, padded_, padded_);
    auto dq = gradients_.q.at(sequence, head);
    merge_tile(dq[row + r], dq.stride, rows, dim, query_gradients_, padded_, key_ == first_block(shape_, row, block_),
               ones.data(), ones.data());
  }

  const Inputs& in_;
  Shape shape_;  ///< of the current sequence; the scratch memory is for the longest possible
  const Output& out_;
  const Gradients& gradients_;
  int64_t padded_, block_, query_block_;
  float *keys_transposed_, *values_transposed_, *keys_, *key_gradients_, *value_gradients_;
  float *queries_, *row_gradients_, *query_gradients_, *probabilities_, *score_gradients_, *dots_;
  int64_t key_ = 0, key_count_ = 0;
};

class HostAttention : public torch::autograd::Function<HostAttention> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const AttentionForm& form, const std::optional<Tensor>& of_packed) {
    const auto positions = of_packed.value_or(Tensor());
    auto rows = at::empty({q.size(0) * q.size(1), q.size(2) * q.size(3)}, q.options());
    auto log_sum_exp = at::empty({q.size(0), q.size(2), q.size(1)}, q.options());
    Inputs inputs(q, k, v, form, positions);
    for_each_key_head<Forward>(inputs, Output(rows.view(q.sizes()), log_sum_exp));
    context->save_for_backward({q, k, v, rows, log_sum_exp});
    context->saved_data["scale"] = form.scale_for(q.size(3));
    context->saved_data["window"] = form.window;
    if (positions.defined()) context->saved_data["positions"] = positions;
    return rows;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    auto gradient = gradients[0].contiguous().view(q.sizes());
    auto dq = at::empty(q.sizes(), q.options()), dk = at::empty(k.sizes(), k.options()), dv = at::empty_like(dk);
    auto& data = context->saved_data;
    const auto positions = data.find("positions");
    Inputs inputs(q, k, v, {.scale = data["scale"].toDouble(), .window = data["window"].toInt()},
                  positions == data.end() ? Tensor() : positions->second.toTensor());
    Output output(saved[3].view(q.sizes()), saved[4]);
    for_each_key_head<Backward>(
        inputs, output, Gradients{Heads<float>(gradient), Heads<float>(dq), Heads<float>(dk), Heads<float>(dv)});
    return {dq, dk, dv, Tensor(), Tensor()};
  }
};

Tensor with_adjacent_elements(const Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

}  // namespace

bool host_attention_takes(const Tensor& q, const Tensor& k, const Tensor& v) {
  auto fits = [](const Tensor& x) {
    return on_host(x) && x.scalar_type() == torch::kFloat32 && x.numel() > 0 && x.size(-1) <= 256;
  };
  return fits(q) && fits(k) && fits(v) && k.sizes() == v.sizes() && k.size(0) == q.size(0) && k.size(1) == q.size(1) &&
         k.size(3) == q.size(3) && q.size(2) % k.size(2) == 0;
}

Tensor host_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionForm& form,
                      const Tensor& positions) {
  RUNNER_CHECK(form.softcap == 0, "host_attention has no soft cap");
  return HostAttention::apply(with_adjacent_elements(q), with_adjacent_elements(k), with_adjacent_elements(v), form,
                              given(positions));
}

}  // namespace runner
