#include "runner/models/cross_entropy.hpp"

#include "runner/base/error.hpp"
#include "runner/models/loss_chunks.hpp"

namespace runner {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

Tensor log_probabilities(const Tensor& hidden, const Tensor& weight) {
  auto logits = at::linear(hidden, weight);
  logits = logits.to(loss_dtype(hidden));  // frees those in 16 bits before the result is made
  return at::log_softmax(logits, -1);
}

Tensor summed_loss(const Tensor& log_probabilities, const Tensor& targets) {
  return at::nll_loss(log_probabilities, targets, /*weight=*/{}, at::Reduction::Sum, ignored_target);
}

class ChunkedCrossEntropy : public torch::autograd::Function<ChunkedCrossEntropy> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                        int64_t chunk_tokens) {
    int64_t tokens = hidden.size(0);
    bool one_chunk = chunk_tokens <= 0 || chunk_tokens >= tokens;
    auto cast_weight = weight.to(hidden.scalar_type());
    auto loss = at::zeros({}, hidden.options().dtype(loss_dtype(hidden)));
    auto minus_one = at::full({}, -1.0, loss.options());
    auto hidden_gradient = at::empty_like(hidden);
    Tensor weight_gradient;
    if (weight.requires_grad() && (!one_chunk || tokens == 0))
      weight_gradient = at::zeros_like(weight, weight.options().dtype(loss_dtype(hidden)));

    for_each_chunk(tokens, chunk_tokens, [&](int64_t start, int64_t count) {
      auto rows = hidden.narrow(0, start, count);
      auto target = targets.narrow(0, start, count);
      auto probabilities = log_probabilities(rows, cast_weight);
      loss.add_(summed_loss(probabilities, target));
      // d loss / d logits = softmax - onehot, and 0 for ignored targets. Rows of ignored targets are zeroed on the
      // hidden side, which is narrower. index_put_ accumulates deterministically on CUDA, unlike scatter_add_.
      auto counted = target.ne(ignored_target).unsqueeze(1).to(rows.scalar_type());
      auto row = at::arange(count, target.options());
      probabilities.exp_().index_put_({row, target.clamp_min(0)}, minus_one, /*accumulate=*/true);
      auto logit_gradient = probabilities.to(rows.scalar_type());
      auto rows_gradient = hidden_gradient.narrow(0, start, count);
      at::mm_out(rows_gradient, logit_gradient, cast_weight);
      rows_gradient.mul_(counted);
      if (!weight.requires_grad()) return;
      auto counted_rows = rows * counted;
      if (one_chunk)
        weight_gradient = at::mm(logit_gradient.t(), counted_rows);
      else
        add_product(weight_gradient, logit_gradient, counted_rows);
    });
    if (weight_gradient.defined()) weight_gradient = weight_gradient.to(weight.scalar_type());
    context->save_for_backward({hidden_gradient, weight_gradient});
    return loss;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    // Scales in place: autograd's version check then rejects a second backward through the same graph.
    auto saved = context->get_saved_variables();
    for (auto& gradient : saved)
      if (gradient.defined()) gradient.mul_(gradients[0]);
    return {saved[0], saved[1], Tensor(), Tensor()};
  }
};

}  // namespace

Tensor chunked_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets, int64_t chunk_tokens) {
  RUNNER_CHECK(hidden.dim() == 2 && targets.dim() == 1 && targets.size(0) == hidden.size(0));
  if (at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad()))
    return ChunkedCrossEntropy::apply(hidden, weight, targets, chunk_tokens);

  auto cast_weight = weight.to(hidden.scalar_type());
  auto loss = at::zeros({}, hidden.options().dtype(loss_dtype(hidden)));
  for_each_chunk(hidden.size(0), chunk_tokens, [&](int64_t start, int64_t count) {
    loss.add_(
        summed_loss(log_probabilities(hidden.narrow(0, start, count), cast_weight), targets.narrow(0, start, count)));
  });
  return loss;
}

}  // namespace runner
