// Heads of attention's tensors, and the work of each key head, divided among threads.
#pragma once
#include <ATen/Parallel.h>

#include <algorithm>
#include <numbers>

#include "runner/base/round_up.hpp"
#include "runner/models/attention_form.hpp"
#include "runner/models/sequences.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

struct AttentionShape {
  int64_t batch, seq_len, heads, key_heads, head_dim;
  float factor;    ///< of scores
  int64_t window;  ///< seq_len: all earlier keys

  static AttentionShape of(const torch::Tensor& q, const torch::Tensor& k, const AttentionForm& form) {
    return {q.size(0),
            q.size(1),
            q.size(2),
            k.size(2),
            q.size(3),
            static_cast<float>(form.scale_for(q.size(3))),
            form.window > 0 ? std::min(form.window, q.size(1)) : q.size(1)};
  }
  /// The shape of one sequence.
  AttentionShape of_length(int64_t length) const {
    AttentionShape shape = *this;
    shape.seq_len = length;
    shape.window = std::min(window, length);
    return shape;
  }
  int64_t group() const { return heads / key_heads; }
  float scale() const { return factor; }
  bool windowed() const { return window < seq_len; }
  /// The first query after those that see one of the keys before `end`.
  int64_t queries_end(int64_t end) const { return std::min(seq_len, end + window - 1); }
  /// The first key that the query sees.
  int64_t first_key(int64_t query) const { return std::max<int64_t>(0, query - window + 1); }
  /// Factor that makes scores to base 2.
  float score_scale() const { return scale() * std::numbers::log2e_v<float>; }
};

/// The rows of one head of a tensor [B, T, heads, head_dim].
template <class Element>
struct HeadRows {
  Element* data;
  int64_t stride;
  Element* operator[](int64_t row) const { return data + row * stride; }
};

/// All heads of a tensor. A Tensor's accessors would check on every call.
template <class Element>
struct Heads {
  explicit Heads(const torch::Tensor& x)
      : data(x.is_meta() ? nullptr : x.data_ptr<Element>()), batch(x.stride(0)), row(x.stride(1)), head(x.stride(2)) {}
  /// The rows of a sequence.
  HeadRows<Element> at(const Sequence& sequence, int64_t h) const {
    return {data + sequence.row * batch + sequence.first * row + h * head, row};
  }
  Element* data;
  int64_t batch, row, head;
};

template <class Element>
struct AttentionInputs {
  /// `positions`: of the tokens in their sequences, on the host; undefined: each row is a sequence.
  AttentionInputs(const torch::Tensor& queries, const torch::Tensor& keys, const torch::Tensor& values,
                  const AttentionForm& form = {}, const torch::Tensor& positions = {})
      : shape(AttentionShape::of(queries, keys, form)),
        device(queries.device()),
        q(queries),
        k(keys),
        v(values),
        sequences(sequences_of(shape.batch, shape.seq_len, positions)) {}
  AttentionShape shape;
  torch::Device device;
  Heads<Element> q, k, v;
  std::vector<Sequence> sequences;
};

template <class Element>
struct AttentionOutput {
  AttentionOutput(const torch::Tensor& result, const torch::Tensor& statistics)
      : rows(result),
        log_sum_exp(statistics.is_meta() ? nullptr : statistics.data_ptr<float>()),
        heads(statistics.size(1)),
        seq_len(statistics.size(2)) {}
  /// The log-sum-exp of a sequence's scores, to base 2, for each query.
  float* statistics(const Sequence& sequence, int64_t head) const {
    return log_sum_exp + (sequence.row * heads + head) * seq_len + sequence.first;
  }
  Heads<Element> rows;
  float* log_sum_exp;  ///< [B, H, T]
  int64_t heads, seq_len;
};

template <class Element>
struct AttentionGradients {
  Heads<Element> rows, q, k, v;
};

/// Allocates parts of one buffer, aligned to 64 bytes if the buffer is. Without a buffer, only counts.
class Scratch {
 public:
  explicit Scratch(float* data) : data_(data) {}
  template <class Element = float>
  Element* take(int64_t count) {
    int64_t begin = taken_;
    taken_ += round_up(count * static_cast<int64_t>(sizeof(Element)), 64) / 4;
    return data_ ? reinterpret_cast<Element*>(data_ + begin) : nullptr;
  }
  int64_t taken() const { return taken_; }

 private:
  float* data_;
  int64_t taken_ = 0;
};

/// Runs Work(inputs, arguments..., scratch)(sequence, key head) for each key head of each sequence. Each thread gets an equal
/// share of them. Of tensors without values it only makes the buffer.
template <class Work, class Element, class... Arguments>
void for_each_key_head(const AttentionInputs<Element>& inputs, const Arguments&... arguments) {
  Scratch count(nullptr);
  Work(inputs, arguments..., count);
  const int64_t key_heads = inputs.shape.key_heads;
  int64_t heads = std::ssize(inputs.sequences) * key_heads, shares = std::min<int64_t>(heads, at::get_num_threads());
  const torch::Tensor buffer = at::empty({shares, count.taken()}, torch::dtype(torch::kFloat32).device(inputs.device));
  if (buffer.is_meta()) return;
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share) {
      Scratch scratch(buffer.data_ptr<float>() + share * count.taken());
      Work work(inputs, arguments..., scratch);
      for (int64_t i = heads * share / shares; i < heads * (share + 1) / shares; ++i)
        work(inputs.sequences[static_cast<size_t>(i / key_heads)], i % key_heads);
    }
  });
}

}  // namespace runner
