#include "runner/models/token_loss.hpp"

#include "runner/base/error.hpp"
#include "runner/models/loss_chunks.hpp"
#include "runner/models/sequences.hpp"

namespace runner {

using torch::Tensor, torch::autograd::AutogradContext, torch::autograd::variable_list;

namespace {

/// The tokens of a chunk that have valid targets.
struct Counted {
  Tensor index, rows, logits, targets;
  bool any() const { return index.numel() > 0; }
};

/// The weight and the bias of the logits in the compute dtype. The bias may be undefined.
struct Projection {
  Tensor weight, bias;
  VocabularyPart part;
};

Counted counted(const Tensor& hidden, const Projection& cast, const Tensor& targets, int64_t start, int64_t count) {
  Counted chunk;
  chunk.index = targets.narrow(0, start, count).ne(ignored_target).nonzero().squeeze(1) + start;
  chunk.rows = hidden.index_select(0, chunk.index);
  chunk.targets = targets.index_select(0, chunk.index);
  chunk.logits = cast.part.join(at::linear(chunk.rows, cast.weight, cast.bias)).to(wide_dtype(hidden));
  return chunk;
}

/// Calls use(chunk) for each chunk with tokens that count. If one chunk has all tokens, also for none: the loss may gather those of other
/// ranks, which call it as often.
template <typename Use>
void for_each_counted(const Tensor& hidden, const Projection& cast, const Tensor& targets, int64_t chunk_tokens,
                      Use&& use) {
  if (chunk_tokens == 0) return use(counted(hidden, cast, targets, 0, hidden.size(0)));
  for_each_chunk(hidden.size(0), chunk_tokens, [&](int64_t start, int64_t count) {
    if (auto chunk = counted(hidden, cast, targets, start, count); chunk.any()) use(std::move(chunk));
  });
}

Projection cast_to(const Tensor& hidden, const Tensor& weight, const LogitOptions& options) {
  const auto& bias = options.bias;
  return {weight.to(hidden.scalar_type()), bias.defined() ? bias.to(hidden.scalar_type()) : Tensor(), options.part};
}

Tensor summed(const Counted& chunk, const TokenLoss& loss, double softcap) {
  auto losses = loss(softcap == 0 ? chunk.logits : (chunk.logits / softcap).tanh() * softcap, chunk.targets);
  RUNNER_CHECK(losses.dim() == 1 && losses.size(0) == chunk.targets.size(0), "a loss must be one number per token");
  return losses.sum();
}

class ChunkedTokenLoss : public torch::autograd::Function<ChunkedTokenLoss> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                        int64_t chunk_tokens, const TokenLoss& loss, const LogitOptions& options,
                        const std::optional<Tensor>& of_bias) {
    const auto bias = of_bias.value_or(Tensor());
    const bool biased = bias.defined() && bias.requires_grad();
    auto cast = cast_to(hidden, weight, options);
    auto total = at::zeros({}, hidden.options().dtype(wide_dtype(hidden)));
    auto hidden_gradient = at::zeros_like(hidden);
    Tensor weight_gradient, bias_gradient;
    if (biased) bias_gradient = at::zeros_like(bias, bias.options().dtype(wide_dtype(hidden)));
    if (weight.requires_grad()) weight_gradient = at::zeros_like(weight, weight.options().dtype(wide_dtype(hidden)));
    for_each_counted(hidden, cast, targets, chunk_tokens, [&](Counted chunk) {
      chunk.logits.requires_grad_(true);
      Tensor sum, gradient;
      {
        torch::AutoGradMode grad(true);
        sum = summed(chunk, loss, options.softcap);
        gradient = torch::autograd::grad({sum}, {chunk.logits})[0];
        gradient = gradient.narrow(1, options.part.first(), weight.size(0)).to(chunk.rows.scalar_type());
      }
      total.add_(sum.detach());
      hidden_gradient.index_copy_(0, chunk.index, at::mm(gradient, cast.weight));
      if (biased) bias_gradient.add_(gradient.sum(at::IntArrayRef{0}, /*keepdim=*/false, bias_gradient.scalar_type()));
      if (weight_gradient.defined()) add_product(weight_gradient, gradient, chunk.rows);
    });
    cast = {};  // before the copy of the gradient exists
    if (weight_gradient.defined()) weight_gradient = as_gradient_of(weight, weight_gradient);
    if (biased) bias_gradient = as_gradient_of(bias, bias_gradient);
    context->save_for_backward({hidden_gradient, weight_gradient, bias_gradient});
    return total;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    for (auto& gradient : saved)
      if (gradient.defined()) gradient.mul_(gradients[0]);
    return {saved[0], saved[1], Tensor(), Tensor(), Tensor(), Tensor(), saved[2]};
  }
};

}  // namespace

Tensor chunked_token_loss(const Tensor& hidden, const Tensor& weight, const Tensor& targets, int64_t chunk_tokens,
                          const TokenLoss& loss, const LogitOptions& options) {
  RUNNER_CHECK(hidden.dim() == 2 && targets.dim() == 1 && targets.size(0) == hidden.size(0));
  if (at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad()))
    return ChunkedTokenLoss::apply(hidden, weight, targets, chunk_tokens, loss, options, given(options.bias));
  const auto cast = cast_to(hidden, weight, options);
  auto total = at::zeros({}, hidden.options().dtype(wide_dtype(hidden)));
  for_each_counted(hidden, cast, targets, chunk_tokens,
                   [&](const Counted& chunk) { total.add_(summed(chunk, loss, options.softcap)); });
  return total;
}

}  // namespace runner
