#include "runner/models/partial_attention.hpp"

#include <algorithm>
#include <limits>
#include <ranges>

#include "runner/models/attention_scores.hpp"
#include "runner/models/fused_kernel.hpp"
#include "strategies/collective/counting_allocator.hpp"
#include "strategies/contract/profiled.hpp"

namespace runner {

using torch::Tensor;

namespace {

/// Queries and keys of one call of a kernel.
struct Piece {
  const QueryRun& run;
  TokenSpan queries, keys;
  bool diagonal = false;  ///< the keys are those at the places of the queries, and each query sees those up to its own
  bool first = false;     ///< no other part of the queries has been computed

  /// The piece's part of a tensor [B, tokens, ...].
  Tensor of_queries(const Tensor& x) const { return of(x, queries); }
  Tensor of_keys(const Tensor& x) const { return of(x, keys); }
  /// The piece's part of a tensor [B, heads, queries].
  Tensor of_statistics(const Tensor& x) const {
    return x.narrow(0, run.row, run.rows).narrow(2, queries.index, queries.length);
  }

 private:
  Tensor of(const Tensor& x, const TokenSpan& span) const {
    return x.narrow(0, run.row, run.rows).narrow(1, span.index, span.length);
  }
};

/// The tokens of `span` with places in [begin, end).
TokenSpan within(const TokenSpan& span, int64_t begin, int64_t end) {
  const int64_t first = std::max(span.position, begin), last = std::min(span.end(), end);
  return {.position = first, .index = span.index + first - span.position, .length = std::max<int64_t>(0, last - first)};
}

bool fused_kernel_takes(const Tensor& q) {
  if (on_host(q)) return true;
  static const FusedKernel flash("aten::_scaled_dot_product_flash_attention");
  const bool half = q.scalar_type() == torch::kBFloat16 || q.scalar_type() == torch::kHalf;
  return on_cuda(q) && half && q.size(-1) % 8 == 0 && q.size(-1) <= 256 && flash.serves(q);
}

/// Whether the form needs masks by places.
bool needs_masks(const Tensor& q, const PartialForm& form) {
  const auto& attention = form.form;
  const bool windowed = attention.window > 0 && attention.window < form.row_tokens;
  return attention.softcap > 0 || form.dropout.drops() || windowed || !fused_kernel_takes(q);
}

/// Calls body(piece) for everything that queries see of the keys. With masks a piece has all keys of a span, in tiles of queries.
template <class Body>
void for_each_piece(const PartialForm& form, const std::vector<TokenSpan>& keys, bool masks, const Body& body) {
  const int64_t window = form.form.window;
  for (const auto& run : form.runs) {
    const auto& tokens = run.tokens;
    const int64_t tile = masks && !form.dropout.drops() ? attention_tile : tokens.length;
    for (int64_t at = tokens.position; at < tokens.end(); at += tile) {
      const auto queries = within(tokens, at, at + tile);
      const int64_t begin = window > 0 ? std::max(run.begin, at - window + 1) : run.begin;
      if (!masks)
        for (const auto& span : keys)
          if (const auto own = within(span, at, queries.end()); own.length > 0)
            body(Piece{.run = run, .queries = queries, .keys = own, .diagonal = true, .first = true});
      for (const auto& span : keys | std::views::reverse) {  // first the keys at the places of the queries
        const auto seen = within(span, begin, masks ? queries.end() : at);
        if (seen.length == 0) continue;
        body(Piece{.run = run, .queries = queries, .keys = seen, .first = masks && seen.end() == queries.end()});
      }
    }
  }
}

/// [B, tokens, heads, head_dim] -> [B, heads, tokens, head_dim].
Tensor by_head(const Tensor& x) { return x.transpose(1, 2); }

/// A piece of the result [B, queries, H, head_dim] and its log-sum-exp [B, H, queries].
struct PieceResult {
  Tensor rows, log_sum_exp;
};
/// Gradients [B, tokens, heads, head_dim].
struct PieceGradients {
  Tensor q, k, v;
};

PieceResult fused_piece(const Piece& piece, const Tensor& q, const Tensor& k, const Tensor& v, double scale) {
  const auto queries = by_head(piece.of_queries(q)), keys = by_head(piece.of_keys(k)),
             values = by_head(piece.of_keys(v));
  const LibraryScope library;
  if (q.is_meta()) {
    const auto rows = at::empty(piece.of_queries(q).sizes(), q.options());
    return {rows, at::empty({rows.size(0), rows.size(2), rows.size(1)}, q.options().dtype(wide_dtype(q)))};
  }
  if (q.is_cpu()) {
    const auto [rows, statistics] = at::_scaled_dot_product_flash_attention_for_cpu(
        queries, keys, values, /*dropout_p=*/0.0, piece.diagonal, /*attn_mask=*/{}, scale);
    return {by_head(rows), statistics};
  }
  const auto result = at::_scaled_dot_product_flash_attention(queries, keys, values, /*dropout_p=*/0.0, piece.diagonal,
                                                              /*return_debug_mask=*/false, scale);
  return {by_head(std::get<0>(result)), std::get<1>(result)};
}

/// From the complete result and its log-sum-exp.
PieceGradients fused_gradients(const Piece& piece, const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& rows, const Tensor& gradient, const Tensor& log_sum_exp, double scale) {
  const auto queries = by_head(piece.of_queries(q)), keys = by_head(piece.of_keys(k)),
             values = by_head(piece.of_keys(v)), result = by_head(piece.of_queries(rows)),
             of_result = by_head(piece.of_queries(gradient));
  const auto statistics = piece.of_statistics(log_sum_exp);
  const auto like = [&](const Tensor& heads) { return at::empty(by_head(heads).sizes(), q.options()); };
  if (q.is_meta()) return {like(queries), like(keys), like(values)};
  const LibraryScope library;
  std::tuple<Tensor, Tensor, Tensor> gradients;
  if (q.is_cpu()) {
    gradients = at::_scaled_dot_product_flash_attention_for_cpu_backward(of_result, queries, keys, values, result,
                                                                         statistics, /*dropout_p=*/0.0, piece.diagonal,
                                                                         /*attn_mask=*/{}, scale);
  } else {
    const auto unused = at::empty({0}, q.options().dtype(torch::kInt64));  // the state of a generator
    gradients = at::_scaled_dot_product_flash_attention_backward(
        of_result, queries, keys, values, result, statistics.contiguous(), /*cum_seq_q=*/{}, /*cum_seq_k=*/{},
        piece.queries.length, piece.keys.length, /*dropout_p=*/0.0, piece.diagonal, unused, unused, scale);
  }
  const auto& [dq, dk, dv] = gradients;
  return {by_head(dq), by_head(dk), by_head(dv)};
}

/// A piece in single operations. Heads are batches of matrices: queries and rows [B * KV, group * queries, head_dim], keys and values
/// [B * KV, keys, head_dim].
class Scores {
 public:
  Scores(const Piece& piece, const Tensor& q, const Tensor& k, const PartialForm& form)
      : piece_(piece),
        form_(form),
        key_heads_(k.size(2)),
        group_(q.size(2) / k.size(2)),
        head_dim_(q.size(3)),
        queries_(of_queries(q)),
        keys_(of_keys(k)) {}

  Tensor of_queries(const Tensor& x) const {
    return piece_.of_queries(x)
        .unflatten(2, {key_heads_, group_})
        .permute({0, 2, 3, 1, 4})
        .reshape({batches(), group_ * piece_.queries.length, x.size(-1)});
  }
  Tensor of_keys(const Tensor& x) const {
    return by_head(piece_.of_keys(x)).reshape({batches(), piece_.keys.length, x.size(-1)});
  }
  /// The statistics of the piece: [B, H, queries] -> [B * KV, group * queries, 1].
  Tensor of_statistics(const Tensor& x) const {
    return piece_.of_statistics(x).reshape({batches(), group_ * piece_.queries.length, 1});
  }
  /// The reverse of the three.
  Tensor as_queries(const Tensor& x) const {
    return x.view({piece_.run.rows, key_heads_, group_, piece_.queries.length, -1})
        .permute({0, 3, 1, 2, 4})
        .flatten(2, 3);
  }
  Tensor as_keys(const Tensor& x) const {
    return by_head(x.view({piece_.run.rows, key_heads_, piece_.keys.length, -1}));
  }
  Tensor as_statistics(const Tensor& x) const {
    return x.view({piece_.run.rows, key_heads_ * group_, piece_.queries.length});
  }

  const Tensor& queries() const { return queries_; }
  const Tensor& keys() const { return keys_; }

  /// In the dtype of sums; minus infinity where a query does not see a key. `tanh`: as in in_form().
  Tensor compute(Tensor* tanh = nullptr) const {
    auto scores =
        in_form(at::bmm(queries_, keys_.transpose(1, 2)).to(wide_dtype(queries_)), form_.form, head_dim_, tanh);
    if (hides_keys()) by_group(scores).masked_fill_(hidden(), minus_infinity);
    return scores;
  }
  /// The dropout's mask of the piece, in the shape of scores.
  Tensor kept() const {
    auto place = form_.dropout.place;
    place.first_row += piece_.run.row;
    place.rows = piece_.run.rows;
    place.parts.push_back({.dim = 2, .first = piece_.queries.position, .whole = form_.row_tokens});
    place.parts.push_back({.dim = 3, .first = piece_.keys.position, .whole = form_.row_tokens});
    return keep_mask({piece_.run.rows, key_heads_ * group_, piece_.queries.length, piece_.keys.length},
                     queries_.device(), form_.dropout.p, place)
        .view({batches(), group_ * piece_.queries.length, piece_.keys.length});
  }

 private:
  int64_t batches() const { return piece_.run.rows * key_heads_; }
  Tensor by_group(const Tensor& scores) const {
    return scores.view({batches(), group_, piece_.queries.length, piece_.keys.length});
  }
  bool hides_keys() const {
    return piece_.keys.end() > piece_.queries.position + 1 ||
           (form_.form.window > 0 && piece_.queries.end() - piece_.keys.position > form_.form.window);
  }
  /// [queries, keys].
  Tensor hidden() const {
    const auto places = torch::TensorOptions(torch::kInt32).device(queries_.device());
    const auto of = [&](const TokenSpan& span) { return at::arange(span.position, span.end(), places); };
    const auto distance = of(piece_.queries).unsqueeze(1) - of(piece_.keys);
    auto hidden = distance < 0;
    return form_.form.window > 0 ? hidden.logical_or_(distance >= form_.form.window) : hidden;
  }

  const Piece& piece_;
  const PartialForm& form_;
  int64_t key_heads_, group_, head_dim_;
  Tensor queries_, keys_;
};

/// A query that sees none of the keys has a result of zeros and a log-sum-exp of minus infinity.
PieceResult eager_piece(const Piece& piece, const Tensor& q, const Tensor& k, const Tensor& v,
                        const PartialForm& form) {
  const Scores scores(piece, q, k, form);
  auto weights = scores.compute();
  auto largest = weights.amax(-1, /*keepdim=*/true);
  largest.masked_fill_(largest == minus_infinity, 0);
  auto sum = weights.sub_(largest).exp_().sum(-1, /*keepdim=*/true);
  if (form.dropout.drops()) weights.mul_(scores.kept()).mul_(1 / (1 - form.dropout.p));
  auto rows = at::bmm(weights.to(q.scalar_type()), scores.of_keys(v)).to(sum.scalar_type());
  rows.div_(sum.clamp_min(std::numeric_limits<float>::min()));
  return {scores.as_queries(rows), scores.as_statistics(largest.add_(sum.log_()))};
}

PieceGradients eager_gradients(const Piece& piece, const Tensor& q, const Tensor& k, const Tensor& v,
                               const Tensor& gradient, const Tensor& dots, const Tensor& log_sum_exp,
                               const PartialForm& form) {
  const Scores scores(piece, q, k, form);
  const auto dtype = q.scalar_type();
  Tensor tanh;
  auto probabilities = scores.compute(&tanh);
  probabilities.sub_(scores.of_statistics(log_sum_exp)).exp_();
  const auto of_rows = scores.of_queries(gradient);
  // Dropout: kept probabilities, and then the gradients of those that were kept.
  const double factor = 1 / (1 - form.dropout.p);
  const auto kept = form.dropout.drops() ? scores.kept() : Tensor();
  auto dropped = kept.defined() ? at::mul(probabilities, kept).mul_(factor) : probabilities;
  const auto dv = at::bmm(std::exchange(dropped, Tensor()).to(dtype).transpose(1, 2), of_rows);
  auto change = at::bmm(of_rows, scores.of_keys(v).transpose(1, 2)).to(probabilities.scalar_type());
  if (kept.defined()) change.mul_(kept).mul_(factor);
  change.sub_(scores.of_statistics(dots)).mul_(probabilities);
  probabilities = Tensor();
  through_form(change, form.form, q.size(3), tanh);
  change = change.to(dtype);
  return {scores.as_queries(at::bmm(change, scores.keys())),
          scores.as_keys(at::bmm(change.transpose(1, 2), scores.queries())), scores.as_keys(dv)};
}

}  // namespace

std::vector<QueryRun> query_runs(const std::vector<TokenSpan>& tokens, int64_t rows, const Tensor& positions) {
  std::vector<QueryRun> runs;
  if (rows == 0) return runs;
  if (!positions.defined()) {
    for (const auto& span : tokens) runs.push_back({.row = 0, .rows = rows, .tokens = span, .begin = 0});
    return runs;
  }
  const auto place = positions.accessor<int64_t, 2>();
  for (int64_t row = 0; row < rows; ++row)
    for (const auto& span : tokens)
      for (int64_t t = span.position; t < span.end(); ++t) {
        if (t == span.position || t == 0 || place[row][t] == 0)
          runs.push_back({.row = row,
                          .rows = 1,
                          .tokens = {.position = t, .index = span.index + t - span.position, .length = 0},
                          .begin = std::max<int64_t>(0, t - place[row][t])});
        ++runs.back().tokens.length;
      }
  return runs;
}

PartialAttention::PartialAttention(const Tensor& q, const PartialForm& form)
    : q_(q),
      form_(form),
      sum_(at::empty(q.sizes(), q.options().dtype(wide_dtype(q)))),
      log_sum_exp_(at::empty({q.size(0), q.size(2), q.size(1)}, sum_.options())) {}

void PartialAttention::add(const Tensor& k, const Tensor& v, const std::vector<TokenSpan>& tokens) {
  const bool masks = needs_masks(q_, form_);
  const double scale = form_.form.scale_for(q_.size(3));
  for_each_piece(form_, tokens, masks, [&](const Piece& piece) {
    const auto [rows, log_sum_exp] = masks ? eager_piece(piece, q_, k, v, form_) : fused_piece(piece, q_, k, v, scale);
    auto sum = piece.of_queries(sum_), statistics = piece.of_statistics(log_sum_exp_);
    if (piece.first) {
      sum.copy_(rows);
      statistics.copy_(log_sum_exp);
      return;
    }
    const auto merged = at::logaddexp(statistics, log_sum_exp);
    const auto weight = [&](const Tensor& of) { return at::sub(of, merged).exp_().transpose(1, 2).unsqueeze(-1); };
    sum.mul_(weight(statistics)).addcmul_(rows.to(sum.scalar_type()), weight(log_sum_exp));
    statistics.copy_(merged);
  });
}

Tensor PartialAttention::rows() const {
  return sum_.to(q_.scalar_type()).view({q_.size(0) * q_.size(1), q_.size(2) * q_.size(3)});
}

PartialAttentionBackward::PartialAttentionBackward(const Tensor& q, const Tensor& rows, const Tensor& log_sum_exp,
                                                   const Tensor& gradient, const PartialForm& form)
    : q_(q),
      log_sum_exp_(log_sum_exp),
      form_(form),
      rows_(rows.view(q.sizes())),
      gradient_(gradient.contiguous().view(q.sizes())),
      dq_(at::zeros(q.sizes(), q.options().dtype(wide_dtype(q)))) {
  if (needs_masks(q, form))  // the sum of P dP over a row equals dO . O
    dots_ = at::mul(gradient_.to(dq_.scalar_type()), rows_).sum(-1).transpose(1, 2);
}

void PartialAttentionBackward::add(const Tensor& k, const Tensor& v, const std::vector<TokenSpan>& tokens,
                                   const Tensor& dk, const Tensor& dv) {
  const bool masks = needs_masks(q_, form_);
  const double scale = form_.form.scale_for(q_.size(3));
  for_each_piece(form_, tokens, masks, [&](const Piece& piece) {
    const auto gradients = masks ? eager_gradients(piece, q_, k, v, gradient_, dots_, log_sum_exp_, form_)
                                 : fused_gradients(piece, q_, k, v, rows_, gradient_, log_sum_exp_, scale);
    piece.of_queries(dq_).add_(gradients.q);
    piece.of_keys(dk).add_(gradients.k);
    piece.of_keys(dv).add_(gradients.v);
  });
}

}  // namespace runner
