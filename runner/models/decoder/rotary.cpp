#include "runner/models/decoder/rotary.hpp"

#include "runner/base/error.hpp"
#include "runner/models/host_decoding.hpp"
#include "runner/models/sequences.hpp"
#include "strategies/contract/profiled.hpp"

namespace runner::decoder {

using torch::Tensor, torch::autograd::AutogradContext, torch::autograd::variable_list;

RotaryTable::RotaryTable(RopeFrequencies frequencies, int64_t max_seq_len)
    : frequencies_(std::move(frequencies)), max_seq_len_(max_seq_len) {}

RotaryTable::Slice RotaryTable::first(int64_t seq_len, torch::Device device, torch::ScalarType dtype) {
  RUNNER_CHECK(seq_len <= max_seq_len_, "{} positions, but model.max_seq_len is {}", seq_len, max_seq_len_);
  const bool longer = !frequencies_.long_angles.empty() && seq_len > frequencies_.longer_than;
  if (!table_.cos.defined() || table_.cos.device() != device || table_.cos.scalar_type() != dtype || longer != long_) {
    torch::NoGradGuard no_grad;
    long_ = longer;
    if (device.is_meta() && ProfiledScope::current()) {
      const auto half = static_cast<int64_t>(frequencies_.angles.size());
      const auto empty = [&] { return at::empty({max_seq_len_, 1, half}, torch::dtype(dtype).device(device)); };
      table_ = {empty(), empty()};
      return {table_.cos.narrow(0, 0, seq_len), table_.sin.narrow(0, 0, seq_len)};
    }
    auto frequencies = torch::tensor(longer ? frequencies_.long_angles : frequencies_.angles, torch::kFloat64);
    auto angles = at::outer(at::arange(max_seq_len_, torch::kFloat64), frequencies).unsqueeze(1);
    table_ = {angles.cos().mul_(frequencies_.factor).to(device, dtype),
              angles.sin().mul_(frequencies_.factor).to(device, dtype)};
  }
  return {table_.cos.narrow(0, 0, seq_len), table_.sin.narrow(0, 0, seq_len)};
}

namespace {

/// (a, b) -> (a cos - b sin, b cos + a sin). `direction` -1 is the inverse rotation.
Tensor turn(const Tensor& x, const Tensor& cos, const Tensor& sin, double direction) {
  int64_t half = cos.size(-1), rest = x.size(-1) - 2 * half;
  auto out = at::empty(x.sizes(), x.options());
  if (rest > 0) out.narrow(-1, 2 * half, rest).copy_(x.narrow(-1, 2 * half, rest));
  auto a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  auto out_a = out.narrow(-1, 0, half), out_b = out.narrow(-1, half, half);
  at::mul_out(out_a, a, cos).addcmul_(b, sin, -direction);
  at::mul_out(out_b, b, cos).addcmul_(a, sin, direction);
  return out;
}

/// Rows of a table [T, 1, half] at positions [B, T], as [B, T, 1, half]; the table itself without positions.
Tensor at_positions(const Tensor& table, const Tensor& positions) {
  return positions.defined() ? table.index({positions}) : table;
}

class Rotate : public torch::autograd::Function<Rotate> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& cos, const Tensor& sin,
                        const std::optional<Tensor>& of_packed) {
    const auto positions = of_packed.value_or(Tensor());
    context->save_for_backward({cos, sin, positions});
    return turn(x, at_positions(cos, positions), at_positions(sin, positions), 1);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const auto &cos = saved[0], &sin = saved[1], &positions = saved[2];
    return {turn(gradients[0], at_positions(cos, positions), at_positions(sin, positions), -1), Tensor(), Tensor(),
            Tensor()};
  }
};

}  // namespace

Tensor rotate(const Tensor& x, const RotaryTable::Slice& table, const Tensor& positions) {
  if (decodes_on_host(x)) return host_rotate(x, table.cos, table.sin, positions);
  return Rotate::apply(x, table.cos, table.sin, given(positions));
}

}  // namespace runner::decoder
