// Gradients of weights that the backward of a block leaves for later. With them, a backward has two parts: the first one computes the
// gradient of the block's input, which the stage before waits for, and the second one the products for the weights' gradients.
// Source: Qi et al. 2023, arXiv 2401.10241, section 2 (B and W).
#pragma once
#include <deque>
#include <functional>
#include <utility>

#include "strategies/collective/libtorch.hpp"

namespace runner {

class WeightGradients : public torch::CustomClassHolder {
 public:
  using Pointer = c10::intrusive_ptr<WeightGradients>;
  /// A gradient that is left, and the end of the graph that it is for.
  struct Left {
    torch::autograd::Edge weight;
    std::function<torch::Tensor()> product;  ///< computes it. Has the tensors that are needed for it
  };

  /// In a backward. The graph of `weight` leads to a parameter, and must not keep tensors: a cast does not.
  void leave(const torch::Tensor& weight, std::function<torch::Tensor()> product) {
    left_.push_back({torch::autograd::impl::gradient_edge(weight), std::move(product)});
  }
  bool empty() const { return left_.empty(); }
  /// The one that was left first. The list must not be empty.
  Left take() {
    auto first = std::move(left_.front());
    left_.pop_front();
    return first;
  }

  /// For autograd functions: keeps `later`, which may be null, for the backward.
  static void save(torch::autograd::AutogradContext* context, const Pointer& later) {
    if (later) context->saved_data["weight_gradients"] = c10::IValue::make_capsule(later);
  }
  static Pointer saved(const torch::autograd::AutogradContext* context) {
    const auto found = context->saved_data.find("weight_gradients");
    if (found == context->saved_data.end()) return {};
    return c10::static_intrusive_pointer_cast<WeightGradients>(found->second.toCapsule());
  }

 private:
  std::deque<Left> left_;
};

}  // namespace runner
