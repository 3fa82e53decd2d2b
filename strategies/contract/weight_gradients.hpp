// Products for the gradients of weights that the backward of a block leaves for later.
//
// A split backward has two parts (Qi et al. 2023, arXiv 2401.10241, section 2, B and W): the first one computes the gradient of the block's
// input, which the stage before waits for, and the second one what it has left. Where ranks divide matrices, a product is left until the
// sum of the input's gradient over the ranks has started, so that both run at the same time (tensor_axis.hpp).
#pragma once
#include <deque>
#include <functional>

#include "strategies/collective/libtorch.hpp"

namespace runner {

class WeightGradients : public torch::CustomClassHolder {
 public:
  using Pointer = c10::intrusive_ptr<WeightGradients>;

  /// In a backward. `product` computes the gradient of `weight`, and has the tensors that it needs. The graph of `weight` is a parameter or
  /// a chain of casts that ends at one.
  void leave(const torch::Tensor& weight, std::function<torch::Tensor()> product);
  bool empty() const { return left_.empty(); }
  /// Computes the gradient that was left first, and passes it on as the backward of the graph would. There must be one.
  void compute_first();
  void compute_all() {
    while (!empty()) compute_first();
  }

  /// For autograd functions: keeps `later`, which may be null, for the backward.
  static void save(torch::autograd::AutogradContext* context, const Pointer& later);
  static Pointer saved(const torch::autograd::AutogradContext* context);

 private:
  struct Left {
    torch::autograd::Edge weight;
    std::function<torch::Tensor()> product;
  };
  std::deque<Left> left_;
};

}  // namespace runner
