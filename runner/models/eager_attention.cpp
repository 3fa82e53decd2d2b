#include "runner/models/eager_attention.hpp"

#include "runner/models/attention_scores.hpp"
#include "runner/models/sequences.hpp"

namespace runner {

using torch::Tensor, torch::autograd::AutogradContext, torch::autograd::variable_list;

namespace {

/// Positions of queries and keys: [first, end).
struct Range {
  int64_t first, end;
  int64_t size() const { return end - first; }
};

/// [queries, keys], true where a query does not see a key.
Tensor hidden_keys(const Range& queries, const Range& keys, const AttentionForm& form, torch::Device device) {
  auto places = torch::TensorOptions(torch::kInt32).device(device);
  auto distance =
      at::arange(queries.first, queries.end, places).unsqueeze(1) - at::arange(keys.first, keys.end, places);
  auto hidden = distance < 0;
  return form.window > 0 ? hidden.logical_or_(distance >= form.window) : hidden;
}

void save_form(AutogradContext* context, const AttentionForm& form, int64_t head_dim) {
  context->saved_data["scale"] = form.scale_for(head_dim);
  context->saved_data["window"] = form.window;
  context->saved_data["softcap"] = form.softcap;
  context->saved_data["causal"] = form.causal;
}

AttentionForm saved_form(AutogradContext* context) {
  return {.scale = context->saved_data["scale"].toDouble(),
          .window = context->saved_data["window"].toInt(),
          .causal = context->saved_data["causal"].toBool(),
          .softcap = context->saved_data["softcap"].toDouble()};
}

/// [B, 1, T, T], true for keys of other sequences: those that begin at another place of the row.
Tensor other_sequences(const Tensor& positions) {
  const auto begins = at::arange(positions.size(1), positions.options()) - positions;
  return begins.unsqueeze(-1).ne(begins.unsqueeze(1)).unsqueeze(1);
}

/// `positions` [B, T]: of packed rows, or undefined.
Tensor masked_probabilities(const Tensor& q, const Tensor& k, const AttentionForm& form, const Tensor& positions,
                            Tensor* tanh = nullptr) {
  auto scores = in_form(at::matmul(q, k.transpose(-2, -1)), form, q.size(-1), tanh);
  if (form.causal) scores.masked_fill_(hidden_keys({0, q.size(-2)}, {0, k.size(-2)}, form, q.device()), minus_infinity);
  if (positions.defined()) scores.masked_fill_(other_sequences(positions), minus_infinity);
  return at::softmax(scores, -1);
}

/// All tensors are [B, H, T, head_dim]. Saves q, k and v; backward recomputes probabilities and mask.
class DropoutAttention : public torch::autograd::Function<DropoutAttention> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const AttentionForm& form, double p, MaskPlace place, const std::optional<Tensor>& of_packed) {
    const auto positions = of_packed.value_or(Tensor());
    context->save_for_backward({q, k, v, positions});
    context->saved_data["p"] = p;
    save_place(context, place);
    save_form(context, form, q.size(-1));
    auto probabilities = masked_probabilities(q, k, form, positions);
    auto kept = probabilities.mul_(keep_mask(probabilities.sizes(), q.device(), p, place));
    return at::matmul(kept, v).mul_(1 / (1 - p));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    double p = context->saved_data["p"].toDouble();
    const auto form = saved_form(context);
    auto gradient = at::mul(gradients[0], 1 / (1 - p));
    Tensor tanh;
    auto probabilities = masked_probabilities(q, k, form, saved[3], &tanh);
    auto mask = keep_mask(probabilities.sizes(), q.device(), p, saved_place(context));
    auto v_gradient = at::matmul(at::mul(probabilities, mask).transpose(-2, -1), gradient);
    auto probability_gradient = at::matmul(gradient, v.transpose(-2, -1)).mul_(mask);
    auto score_gradient = at::_softmax_backward_data(probability_gradient, probabilities, -1, q.scalar_type());
    through_form(score_gradient, form, q.size(-1), tanh);
    return {at::matmul(score_gradient, k),
            at::matmul(score_gradient.transpose(-2, -1), q),
            v_gradient,
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor()};
  }
};

/// Heads as batches of matrices: queries and rows [B * KV, group * T, head_dim], keys and values [B * KV, T, head_dim].
class Tiles {
 public:
  Tiles(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionForm& form)
      : form_(form),
        batch_(q.size(0)),
        queries_(q.size(1)),
        key_heads_(k.size(2)),
        group_(q.size(2) / k.size(2)),
        head_dim_(q.size(3)),
        earlier_(k.size(1) - q.size(1)),
        keys_(per_head(k)),
        values_(per_head(v)) {}

  /// Calls body(first query, number of queries, range of keys) for each tile.
  template <class Body>
  void for_each(Body&& body) const {
    for (int64_t first = 0; first < queries_; first += attention_tile) {
      const int64_t count = std::min(attention_tile, queries_ - first), end = earlier_ + first + count;
      body(first, count, Range{form_.window > 0 ? std::max<int64_t>(0, end - count - form_.window + 1) : 0, end});
    }
  }

  /// Rows [first, first + count) of x [B, T, heads, head_dim].
  Tensor rows(const Tensor& x, int64_t first, int64_t count) const {
    return x.narrow(1, first, count)
        .unflatten(2, {key_heads_, group_})
        .permute({0, 2, 3, 1, 4})
        .reshape({batch_ * key_heads_, group_ * count, head_dim_});
  }
  /// Writes them.
  void put(const Tensor& x, int64_t first, int64_t count, const Tensor& rows) const {
    x.narrow(1, first, count)
        .unflatten(2, {key_heads_, group_})
        .copy_(rows.view({batch_, key_heads_, group_, count, head_dim_}).permute({0, 3, 1, 2, 4}));
  }
  Tensor keys(const Range& range) const { return keys_.narrow(1, range.first, range.size()); }
  Tensor values(const Range& range) const { return values_.narrow(1, range.first, range.size()); }

  Tensor probabilities(const Tensor& q, int64_t first, int64_t count, const Range& range,
                       Tensor* tanh = nullptr) const {
    auto scores = in_form(at::bmm(q, keys(range).transpose(1, 2)), form_, head_dim_, tanh);
    scores.view({batch_ * key_heads_, group_, count, range.size()})
        .masked_fill_(hidden_keys({earlier_ + first, earlier_ + first + count}, range, form_, q.device()),
                      minus_infinity);
    return at::softmax(scores, -1);
  }

  /// The sum of gradients of keys or values over tiles.
  Tensor zero_sum() const { return at::zeros(keys_.sizes(), keys_.options().dtype(wide_dtype(keys_))); }
  Tensor from_sum(const Tensor& sum) const {
    return sum.view({batch_, key_heads_, -1, head_dim_}).transpose(1, 2).to(keys_.scalar_type());
  }
  int64_t head_dim() const { return head_dim_; }

 private:
  Tensor per_head(const Tensor& x) const {
    return x.transpose(1, 2).reshape({batch_ * key_heads_, x.size(1), head_dim_});
  }

  const AttentionForm& form_;
  int64_t batch_, queries_, key_heads_, group_, head_dim_;
  int64_t earlier_;  ///< keys before the first query
  Tensor keys_, values_;
};

class TiledAttention : public torch::autograd::Function<TiledAttention> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const AttentionForm& form) {
    context->save_for_backward({q, k, v});
    save_form(context, form, q.size(-1));
    auto out = at::empty(q.sizes(), q.options());
    const Tiles tiles(q, k, v, form);
    tiles.for_each([&](int64_t first, int64_t count, const Range& keys) {
      auto probabilities = tiles.probabilities(tiles.rows(q, first, count), first, count, keys);
      tiles.put(out, first, count, at::bmm(probabilities, tiles.values(keys)));
    });
    return out.view({q.size(0) * q.size(1), q.size(2) * q.size(3)});
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const auto form = saved_form(context);
    const Tiles tiles(q, k, v, form);
    auto gradient = gradients[0].contiguous().view(q.sizes());
    auto dq = at::empty(q.sizes(), q.options()), dk = tiles.zero_sum(), dv = tiles.zero_sum();
    tiles.for_each([&](int64_t first, int64_t count, const Range& keys) {
      Tensor tanh;
      const auto queries = tiles.rows(q, first, count), rows = tiles.rows(gradient, first, count);
      auto probabilities = tiles.probabilities(queries, first, count, keys, &tanh);
      dv.narrow(1, keys.first, keys.size()).add_(at::bmm(probabilities.transpose(1, 2), rows));
      auto change = at::bmm(rows, tiles.values(keys).transpose(1, 2));
      change = at::_softmax_backward_data(change, probabilities, -1, q.scalar_type());
      probabilities = Tensor();
      through_form(change, form, tiles.head_dim(), tanh);
      tiles.put(dq, first, count, at::bmm(change, tiles.keys(keys)));
      dk.narrow(1, keys.first, keys.size()).add_(at::bmm(change.transpose(1, 2), queries));
    });
    return {dq, tiles.from_sum(dk), tiles.from_sum(dv), Tensor()};
  }
};

}  // namespace

Tensor tiled_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionForm& form) {
  return TiledAttention::apply(q, k, v, form);
}

Tensor dropout_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionForm& form, double p,
                         MaskPlace place, const Tensor& positions) {
  const int64_t group = q.size(2) / k.size(2);
  auto keys = k.transpose(1, 2), values = v.transpose(1, 2);
  if (group > 1) {
    keys = keys.repeat_interleave(group, 1);
    values = values.repeat_interleave(group, 1);
  }
  return DropoutAttention::apply(q.transpose(1, 2), keys, values, form, p, place, given(positions));
}

}  // namespace runner
