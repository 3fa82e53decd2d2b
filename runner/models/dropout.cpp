#include "runner/models/dropout.hpp"

#include <ATen/Parallel.h>

#include <cmath>

#include "strategies/contract/initialize.hpp"

namespace runner {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor keep_mask(at::IntArrayRef sizes, torch::Device device, double p, uint64_t key) {
  auto mask = at::empty(sizes, torch::TensorOptions().dtype(torch::kBool).device(device));
  if (!device.is_cpu()) {
    auto generator = at::globalContext().defaultGenerator(device).clone();
    generator.set_current_seed(key);
    return mask.bernoulli_(1 - p, generator);
  }
  // Two elements a draw, 32 bits each.
  auto threshold = static_cast<uint64_t>(std::llround((1 - p) * 0x1p32));
  bool* out = mask.data_ptr<bool>();
  int64_t count = mask.numel();
  at::parallel_for(0, (count + 1) / 2, 16384, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair) {
      uint64_t bits = mix64(key + static_cast<uint64_t>(pair));
      out[2 * pair] = (bits & 0xffffffff) < threshold;
      if (2 * pair + 1 < count) out[2 * pair + 1] = (bits >> 32) < threshold;
    }
  });
  return mask;
}

namespace {

class DropoutFunction : public torch::autograd::Function<DropoutFunction> {
 public:
  static Tensor forward(AutogradContext* context, Tensor x, double p, uint64_t key) {
    context->saved_data["p"] = p;
    context->saved_data["key"] = static_cast<int64_t>(key);
    context->mark_dirty({x});
    x.mul_(keep_mask(x.sizes(), x.device(), p, key)).mul_(1 / (1 - p));
    return x;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    double p = context->saved_data["p"].toDouble();
    auto key = static_cast<uint64_t>(context->saved_data["key"].toInt());
    const Tensor& gradient = gradients[0];
    auto x_gradient = at::mul(gradient, keep_mask(gradient.sizes(), gradient.device(), p, key)).mul_(1 / (1 - p));
    return {x_gradient, Tensor(), Tensor()};
  }
};

}  // namespace

uint64_t Dropout::key(const ForwardContext& context, DropoutSite site) const {
  return mix64(mix64(context.dropout_key ^ mix64(block_index_)) + static_cast<uint64_t>(site));
}

Tensor Dropout::operator()(Tensor x, const ForwardContext& context, DropoutSite site) const {
  return active(context) ? DropoutFunction::apply(x, p_, key(context, site)) : x;
}

}  // namespace runner
