#include "strategies/contract/weight_gradients.hpp"

#include <utility>

namespace runner {

using torch::autograd::AutogradContext, torch::autograd::Edge;

void WeightGradients::leave(const torch::Tensor& weight, std::function<torch::Tensor()> product) {
  left_.push_back({torch::autograd::impl::gradient_edge(weight), std::move(product)});
}

/// Calls the nodes of the chain. Autograd's engine cannot be used, because this may be called in a backward.
void WeightGradients::compute_first() {
  auto [edge, product] = std::exchange(left_.front(), {});
  left_.pop_front();
  torch::NoGradGuard no_grad;
  torch::autograd::variable_list gradient{product()};
  product = {};  // frees what only this product needs
  while (edge.is_valid()) {
    const auto node = edge.function;
    gradient = (*node)(std::move(gradient));
    edge = node->num_outputs() == 0 ? Edge() : node->next_edge(0);
  }
}

void WeightGradients::save(AutogradContext* context, const Pointer& later) {
  if (later) context->saved_data["weight_gradients"] = c10::IValue::make_capsule(later);
}

WeightGradients::Pointer WeightGradients::saved(const AutogradContext* context) {
  const auto found = context->saved_data.find("weight_gradients");
  if (found == context->saved_data.end()) return {};
  return c10::static_intrusive_pointer_cast<WeightGradients>(found->second.toCapsule());
}

}  // namespace runner
