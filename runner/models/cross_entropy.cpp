#include "runner/models/cross_entropy.hpp"

#include <ATen/Parallel.h>

#include "runner/base/error.hpp"
#include "runner/models/cross_entropy_loops.hpp"
#include "runner/models/loss_chunks.hpp"
#include "runner/models/sequences.hpp"
#include "strategies/contract/profiled.hpp"

namespace runner {

using torch::Tensor, torch::autograd::AutogradContext, torch::autograd::variable_list;

namespace {

/// Logits with a soft cap. `tanh` receives tanh(logit / cap), which the gradient needs, if there is a cap.
Tensor capped_logits(const Tensor& hidden, const Tensor& weight, const Tensor& bias, double softcap, Tensor& tanh) {
  auto logits = at::linear(hidden, weight, bias);
  if (softcap == 0) return logits;
  tanh = logits.div_(softcap).tanh_();
  return tanh * softcap;
}

/// Multiplies the gradient of capped logits by the derivative of the cap. Overwrites `tanh`.
void through_cap(Tensor& gradient, Tensor& tanh) {
  if (tanh.defined()) gradient.mul_(tanh.square_().neg_().add_(1));
}

Tensor log_probabilities(Tensor logits, const Tensor& hidden) {
  logits = logits.to(wide_dtype(hidden));  // frees those in 16 bits before the result is made
  return at::log_softmax(logits, -1);
}

Tensor summed_loss(const Tensor& log_probabilities, const Tensor& targets) {
  return at::nll_loss(log_probabilities, targets, /*weight=*/{}, at::Reduction::Sum, ignored_target);
}

bool overwrites_logits(const Tensor& hidden) { return on_host(hidden) && hidden.scalar_type() == torch::kBFloat16; }

void check_targets(const Tensor& targets, int64_t columns) {
  const auto valid = targets.eq(ignored_target).logical_or_(targets.ge(0).logical_and_(targets.lt(columns)));
  if (is_profiled(targets)) return;
  if (!targets.is_cpu()) return at::_assert_async(valid.all(), "a target is outside the vocabulary");
  RUNNER_CHECK(valid.all().item<bool>(), "a target is outside the vocabulary of {} tokens", columns);
}

/// The values of bfloat16 logits in host memory.
uint16_t* bits_of(const Tensor& logits) { return reinterpret_cast<uint16_t*>(logits.data_ptr<at::BFloat16>()); }

/// The summed loss of bfloat16 logits in host memory, which are overwritten by their gradient.
Tensor overwriting_loss(const Tensor& logits, const Tensor& targets) {
  const int64_t rows = logits.size(0), columns = logits.size(1);
  check_targets(targets, columns);
  auto losses = at::empty({rows}, logits.options().dtype(torch::kFloat32));
  const auto contiguous = targets.contiguous();
  if (!logits.is_meta())
    at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
      cross_entropy_rows(bits_of(logits) + begin * columns, end - begin, columns,
                         contiguous.data_ptr<int64_t>() + begin, ignored_target, losses.data_ptr<float>() + begin);
    });
  return losses.sum();
}

struct LossGradient {
  Tensor loss, logit_gradient;
};

/// Logits of this rank's part of the vocabulary. Their memory becomes that of exp(logit - largest), unless they are bfloat16 in host
/// memory, and then that of the gradient.
class PartialSoftmax {
 public:
  PartialSoftmax(Tensor logits, const Tensor& targets, const VocabularyPart& part) : targets_(targets) {
    check_targets(targets, part.tokens);
    const auto index = targets - part.first();
    elsewhere_ = index.lt(0).logical_or_(index.ge(logits.size(1)));
    index_ = index.masked_fill(elsewhere_, 0);
    overwrites_ = overwrites_logits(logits);
    const auto dtype = wide_dtype(logits);
    const auto of_target = logits.gather(1, index_.unsqueeze(1)).squeeze(1).to(dtype).masked_fill_(elsewhere_, 0);
    auto sums = Tensor();
    if (overwrites_) {
      values_ = std::move(logits);
      largest_ = at::empty({values_.size(0)}, targets.options().dtype(dtype));
      sums = at::empty_like(largest_);
      for_rows([&](int64_t begin, int64_t count) {
        softmax_sums(row(begin), count, values_.size(1), largest_.data_ptr<float>() + begin,
                     sums.data_ptr<float>() + begin);
      });
    } else {
      values_ = logits.to(dtype);
      logits = Tensor();  // frees those in 16 bits
      largest_ = values_.amax(1);
      sums = values_.sub_(largest_.unsqueeze(1)).exp_().sum(1);
    }
    merge(part.axis->gather(at::stack({largest_, sums, of_target})));
  }

  /// The sum over all tokens that count, the same on all ranks.
  Tensor loss() const { return (log_sum_ - of_target_).masked_fill_(targets_.eq(ignored_target), 0).sum(); }

  /// softmax - onehot, also for ignored targets, in `dtype`.
  Tensor gradient(torch::ScalarType dtype) {
    if (overwrites_) {
      const auto targets = index_.masked_fill(elsewhere_, -1);
      for_rows([&](int64_t begin, int64_t count) {
        softmax_gradients(row(begin), count, values_.size(1), targets.data_ptr<int64_t>() + begin,
                          log_sum_.data_ptr<float>() + begin);
      });
      return values_;
    }
    values_.mul_((largest_ - log_sum_).exp_().unsqueeze(1));
    const auto rows = at::arange(values_.size(0), index_.options());
    values_.index_put_({rows, index_}, elsewhere_.logical_not().to(values_.scalar_type()).neg_(), /*accumulate=*/true);
    return values_.to(dtype);
  }

 private:
  uint16_t* row(int64_t index) const { return bits_of(values_) + index * values_.size(1); }
  template <class Body>
  void for_rows(const Body& body) const {
    if (values_.is_meta()) return;
    at::parallel_for(0, values_.size(0), 1, [&](int64_t begin, int64_t end) { body(begin, end - begin); });
  }
  /// `parts` [ranks, 3, n]: the largest logit, the sum of exponentials and the target's logit or 0, of each rank.
  void merge(const Tensor& parts) {
    const auto largest = parts.select(1, 0), all_largest = largest.amax(0);
    log_sum_ = (parts.select(1, 1) * (largest - all_largest).exp_()).sum(0).log_().add_(all_largest);
    of_target_ = parts.select(1, 2).sum(0);
  }

  Tensor targets_, index_, elsewhere_;  ///< places of the targets among this rank's columns, and whether they have none
  Tensor values_, largest_;
  Tensor log_sum_, of_target_;  ///< over all ranks
  bool overwrites_ = false;
};

/// The summed loss of rows of hidden states. d loss / d logits = softmax - onehot, also for ignored targets unless the
/// logits are overwritten.
LossGradient loss_gradient(const Tensor& rows, const Tensor& weight, const Tensor& bias, const Tensor& target,
                           const LogitOptions& options) {
  Tensor tanh;
  auto logits = capped_logits(rows, weight, bias, options.softcap, tanh);
  if (options.part.axis) {
    PartialSoftmax softmax(std::move(logits), target, options.part);
    auto gradient = softmax.gradient(rows.scalar_type());
    through_cap(gradient, tanh);
    return {softmax.loss(), gradient};
  }
  if (overwrites_logits(rows)) {
    auto loss = overwriting_loss(logits, target);
    through_cap(logits, tanh);
    return {loss, logits};
  }
  auto probabilities = log_probabilities(std::move(logits), rows);
  auto loss = summed_loss(probabilities, target);
  // index_put_ accumulates deterministically on CUDA, unlike scatter_add_.
  auto row = at::arange(rows.size(0), target.options());
  auto minus_one = at::full({}, -1.0, loss.options());
  probabilities.exp_().index_put_({row, target.clamp_min(0)}, minus_one, /*accumulate=*/true);
  auto gradient = probabilities.to(rows.scalar_type());
  through_cap(gradient, tanh);
  return {loss, gradient};
}

class ChunkedCrossEntropy : public torch::autograd::Function<ChunkedCrossEntropy> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                        int64_t chunk_tokens, const LogitOptions& options, const std::optional<Tensor>& of_bias) {
    int64_t tokens = hidden.size(0);
    bool one_chunk = chunk_tokens <= 0 || chunk_tokens >= tokens;
    auto cast_weight = weight.to(hidden.scalar_type());
    const auto bias = of_bias.value_or(Tensor());
    const auto cast_bias = bias.defined() ? bias.to(hidden.scalar_type()) : Tensor();
    const bool biased = bias.defined() && bias.requires_grad();
    auto loss = at::zeros({}, hidden.options().dtype(wide_dtype(hidden)));
    auto hidden_gradient = at::empty_like(hidden);
    Tensor weight_gradient, bias_gradient;
    if (biased) bias_gradient = at::zeros_like(bias, bias.options().dtype(wide_dtype(hidden)));
    if (weight.requires_grad() && (!one_chunk || tokens == 0))
      weight_gradient = at::zeros_like(weight, weight.options().dtype(wide_dtype(hidden)));

    for_each_chunk(tokens, chunk_tokens, [&](int64_t start, int64_t count) {
      auto rows = hidden.narrow(0, start, count);
      auto target = targets.narrow(0, start, count);
      auto [chunk_loss, logit_gradient] = loss_gradient(rows, cast_weight, cast_bias, target, options);
      loss.add_(chunk_loss);
      // Rows of ignored targets are zeroed on the hidden side, which is narrower.
      auto counted = target.ne(ignored_target).unsqueeze(1).to(rows.scalar_type());
      auto rows_gradient = hidden_gradient.narrow(0, start, count);
      at::mm_out(rows_gradient, logit_gradient, cast_weight);
      rows_gradient.mul_(counted);
      if (biased) bias_gradient.add_(at::mv(logit_gradient.t(), counted.squeeze(1)));
      if (!weight.requires_grad()) return;
      auto counted_rows = rows * counted;
      if (one_chunk)
        weight_gradient = summed_product(logit_gradient, counted_rows);
      else
        add_product(weight_gradient, logit_gradient, counted_rows);
    });
    cast_weight = Tensor();  // before the copy of the gradient exists
    if (weight_gradient.defined()) weight_gradient = as_gradient_of(weight, weight_gradient);
    if (biased) bias_gradient = as_gradient_of(bias, bias_gradient);
    context->save_for_backward({hidden_gradient, weight_gradient, bias_gradient});
    return loss;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    // Scales in place: autograd's version check then rejects a second backward through the same graph.
    auto saved = context->get_saved_variables();
    for (auto& gradient : saved)
      if (gradient.defined()) gradient.mul_(gradients[0]);
    return {saved[0], saved[1], Tensor(), Tensor(), Tensor(), saved[2]};
  }
};

}  // namespace

Tensor chunked_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets, int64_t chunk_tokens,
                             const LogitOptions& options) {
  RUNNER_CHECK(hidden.dim() == 2 && targets.dim() == 1 && targets.size(0) == hidden.size(0));
  const auto& bias = options.bias;
  if (at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad()))
    return ChunkedCrossEntropy::apply(hidden, weight, targets, chunk_tokens, options, given(bias));

  auto cast_weight = weight.to(hidden.scalar_type());
  const auto cast_bias = bias.defined() ? bias.to(hidden.scalar_type()) : Tensor();
  auto loss = at::zeros({}, hidden.options().dtype(wide_dtype(hidden)));
  for_each_chunk(hidden.size(0), chunk_tokens, [&](int64_t start, int64_t count) {
    auto rows = hidden.narrow(0, start, count), target = targets.narrow(0, start, count);
    auto logits = soft_capped(at::linear(rows, cast_weight, cast_bias), options.softcap);
    loss.add_(options.part.axis           ? PartialSoftmax(std::move(logits), target, options.part).loss()
              : overwrites_logits(hidden) ? overwriting_loss(logits, target)
                                          : summed_loss(log_probabilities(std::move(logits), rows), target));
  });
  return loss;
}

Tensor soft_capped(Tensor logits, double cap) { return cap == 0 ? logits : logits.div_(cap).tanh_().mul_(cap); }

}  // namespace runner
