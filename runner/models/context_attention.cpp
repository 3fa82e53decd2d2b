#include "runner/models/context_attention.hpp"

#include <ATen/core/ivalue.h>

#include <numeric>

#include "runner/base/error.hpp"
#include "runner/models/attention.hpp"
#include "runner/models/partial_attention.hpp"

namespace runner {

using torch::Tensor, torch::autograd::AutogradContext, torch::autograd::variable_list;

namespace {

/// Values that are not tensors and that backward needs.
struct ContextCall : torch::CustomClassHolder {
  ContextCall(ContextAxis of_axis, PartialForm of_attention, int64_t tokens)
      : axis(std::move(of_axis)), form(std::move(of_attention)), padded(tokens) {}
  ContextAxis axis;
  PartialForm form;
  int64_t padded;  ///< tokens of a row

  std::vector<TokenSpan> tokens_of(int rank) const { return axis.tokens_of(rank, padded); }
  std::vector<TokenSpan> all_tokens() const { return {{.position = 0, .index = 0, .length = padded}}; }
};
using CallPointer = c10::intrusive_ptr<ContextCall>;

void save(AutogradContext* context, const CallPointer& call) {
  context->saved_data["call"] = c10::IValue::make_capsule(call);
}
CallPointer saved_call(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<ContextCall>(context->saved_data["call"].toCapsule());
}

/// Keys and values, or their gradients, as one tensor [B, T, 2, KV, head_dim].
struct KeyValues {
  Tensor both;
  Tensor keys() const { return both.select(2, 0); }
  Tensor values() const { return both.select(2, 1); }
  /// For their gradients.
  KeyValues zero_sums() const { return {at::zeros(both.sizes(), both.options().dtype(wide_dtype(both)))}; }
};

KeyValues joined(const Tensor& k, const Tensor& v) { return {at::stack({k, v}, 2)}; }

/// The ranks whose keys this rank gets in a ring, after `hops` hops.
int source_of(const ContextAxis& axis, int hops) { return (axis.rank() - hops + axis.size()) % axis.size(); }

void gather_forward(const ContextCall& call, KeyValues own, PartialAttention& sums) {
  const KeyValues all{call.axis.gather(std::exchange(own.both, Tensor()))};
  sums.add(all.keys(), all.values(), call.all_tokens());
}

KeyValues gather_backward(const ContextCall& call, KeyValues own, PartialAttentionBackward& sums) {
  KeyValues all{call.axis.gather(std::exchange(own.both, Tensor()))};
  const auto dtype = all.both.scalar_type();
  auto gradients = all.zero_sums();
  sums.add(all.keys(), all.values(), call.all_tokens(), gradients.keys(), gradients.values());
  all.both = Tensor();
  const auto sum = std::exchange(gradients.both, Tensor()).to(dtype);
  return {call.axis.scattered_sum(sum)};
}

void ring_forward(const ContextCall& call, KeyValues own, PartialAttention& sums) {
  for (int hop = 0; hop < call.axis.size(); ++hop) {
    std::optional<RingExchange> keys;
    if (hop + 1 < call.axis.size()) keys = call.axis.exchange(own.both, hop);
    sums.add(own.keys(), own.values(), call.tokens_of(source_of(call.axis, hop)));
    if (keys) own.both = keys->wait();
  }
}

/// The sum of gradients follows keys and values by one hop: it arrives while the next contribution is computed.
KeyValues ring_backward(const ContextCall& call, KeyValues own, PartialAttentionBackward& sums) {
  const auto dtype = own.both.scalar_type();
  std::optional<RingExchange> keys, arriving;
  for (int hop = 0; hop < call.axis.size(); ++hop) {
    if (hop + 1 < call.axis.size()) keys = call.axis.exchange(own.both, hop);
    auto gradients = own.zero_sums();
    sums.add(own.keys(), own.values(), call.tokens_of(source_of(call.axis, hop)), gradients.keys(), gradients.values());
    own.both = Tensor();
    if (arriving) gradients.both.add_(arriving->wait());
    arriving = call.axis.exchange(gradients.both, hop);
    if (keys) own.both = std::exchange(keys, std::nullopt)->wait();
  }
  return {arriving->wait().to(dtype)};
}

/// The forms in which keys and values travel.
class TravellingKeys : public torch::autograd::Function<TravellingKeys> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const CallPointer& call) {
    PartialAttention sums(q, call->form);
    call->axis.division().form == ContextForm::ring ? ring_forward(*call, joined(k, v), sums)
                                                    : gather_forward(*call, joined(k, v), sums);
    auto rows = sums.rows();
    context->save_for_backward({q, k, v, rows, sums.log_sum_exp()});
    save(context, call);
    return rows;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto call = saved_call(context);
    const auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    PartialAttentionBackward sums(q, saved[3], saved[4], gradients[0], call->form);
    const auto of_keys = call->axis.division().form == ContextForm::ring ? ring_backward(*call, joined(k, v), sums)
                                                                         : gather_backward(*call, joined(k, v), sums);
    return {sums.dq(), of_keys.keys(), of_keys.values(), Tensor()};
  }
};

/// Queries, keys and values of this rank's tokens -> those of this rank's heads.
class ToHeads : public torch::autograd::Function<ToHeads> {
 public:
  static variable_list forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                               const CallPointer& call) {
    save(context, call);
    return call->axis.all_tokens({q, k, v});
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto own = saved_call(context)->axis.all_heads(gradients);
    own.emplace_back();
    return own;
  }
};

/// The result of this rank's heads -> that of this rank's tokens.
class ToTokens : public torch::autograd::Function<ToTokens> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& rows, const CallPointer& call) {
    save(context, call);
    return call->axis.all_heads({rows})[0];
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {saved_call(context)->axis.all_tokens({gradients[0]})[0], Tensor()};
  }
};

/// Attention of complete rows with this rank's share of the heads.
Tensor ulysses_attention(const Tensor& q, Tensor k, Tensor v, PlacedDropout dropout, const CallPointer& call,
                         const MicroBatch& batch) {
  const auto& axis = call->axis;
  const int64_t heads = q.size(2), key_heads = k.size(2), own = heads / axis.size();
  RUNNER_CHECK(heads % axis.size() == 0, "{} ranks cannot share {} heads", axis.size(), heads);
  if (const int64_t repeats = std::lcm(key_heads, int64_t{axis.size()}) / key_heads; repeats > 1) {
    k = k.repeat_interleave(repeats, 2);
    v = v.repeat_interleave(repeats, 2);
  }
  auto all = ToHeads::apply(q, k, v, call);
  k = v = Tensor();
  TokenPositions positions{.on_host = batch.all_positions};
  if (dropout.drops()) {
    auto& parts = dropout.place.parts;  // of the heads, if ranks of a tensor axis share them
    if (parts.empty()) parts = {{.dim = 1, .first = 0, .whole = heads}};
    parts[0].first += axis.rank() * own;
    for (int dim : {2, 3}) parts.push_back({.dim = dim, .first = 0, .whole = batch.row_tokens});
    if (positions.packed()) positions.on_device = batch.all_positions.to(q.device());
  }
  auto rows = attention_of_rows(all[0], all[1], all[2], dropout, call->form.form, positions);
  all.clear();
  rows = ToTokens::apply(rows.view({q.size(0), batch.padded_tokens, own, q.size(3)}), call);
  return rows.reshape({q.size(0) * q.size(1), heads * q.size(3)});
}

}  // namespace

Tensor context_attention(const Tensor& q, const Tensor& k, const Tensor& v, const PlacedDropout& dropout,
                         const AttentionForm& form, const ContextAxis& axis, const MicroBatch& batch) {
  PartialForm partial{.form = form, .dropout = dropout, .row_tokens = batch.row_tokens};
  const bool by_heads = axis.division().form == ContextForm::ulysses;
  if (!by_heads)
    partial.runs = query_runs(axis.tokens_of(axis.rank(), batch.padded_tokens), q.size(0), batch.all_positions);
  const auto call = c10::make_intrusive<ContextCall>(axis, std::move(partial), batch.padded_tokens);
  return by_heads ? ulysses_attention(q, k, v, dropout, call, batch) : TravellingKeys::apply(q, k, v, call);
}

}  // namespace runner
