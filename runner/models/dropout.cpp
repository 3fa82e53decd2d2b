#include "runner/models/dropout.hpp"

#include <ATen/Parallel.h>

#include <cmath>

#include "runner/base/error.hpp"
#include "runner/base/hash.hpp"

namespace runner {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

/// Elements [first, first + count) of the mask of this key: two per SplitMix64 value, 32 bits each.
void draw(bool* out, int64_t first, int64_t count, double p, uint64_t key) {
  auto threshold = static_cast<uint64_t>(std::llround((1 - p) * 0x1p32));
  at::parallel_for(first / 2, (first + count + 1) / 2, 16384, [&](int64_t begin, int64_t end) {
    for (int64_t pair = begin; pair < end; ++pair) {
      uint64_t bits = mix64(key + static_cast<uint64_t>(pair));
      int64_t i = 2 * pair - first;
      if (i >= 0) out[i] = (bits & 0xffffffff) < threshold;
      if (i + 1 < count) out[i + 1] = (bits >> 32) < threshold;
    }
  });
}

void draw_on_device(const Tensor& mask, double p, const MaskPlace& place) {
  auto generator = at::globalContext().defaultGenerator(mask.device()).clone();
  auto rows = mask.view({place.rows, -1});
  for (int64_t r = 0; r < place.rows; ++r) {
    generator.set_current_seed(mix64(place.key + static_cast<uint64_t>(place.first_row + r)));
    rows[r].bernoulli_(1 - p, generator);
  }
}

}  // namespace

Tensor keep_mask(at::IntArrayRef sizes, torch::Device device, double p, const MaskPlace& place) {
  auto mask = at::empty(sizes, torch::TensorOptions().dtype(torch::kBool).device(device));
  RUNNER_CHECK(mask.numel() % place.rows == 0, "{} elements for {} rows", mask.numel(), place.rows);
  if (device.is_cpu())
    draw(mask.data_ptr<bool>(), place.first_row * (mask.numel() / place.rows), mask.numel(), p, place.key);
  else
    draw_on_device(mask, p, place);
  return mask;
}

void save_place(AutogradContext* context, const MaskPlace& place) {
  context->saved_data["key"] = static_cast<int64_t>(place.key);
  context->saved_data["first_row"] = place.first_row;
  context->saved_data["rows"] = place.rows;
}

MaskPlace saved_place(AutogradContext* context) {
  auto& saved = context->saved_data;
  return {.key = static_cast<uint64_t>(saved["key"].toInt()),
          .first_row = saved["first_row"].toInt(),
          .rows = saved["rows"].toInt()};
}

namespace {

class DropoutFunction : public torch::autograd::Function<DropoutFunction> {
 public:
  static Tensor forward(AutogradContext* context, Tensor x, double p, MaskPlace place) {
    context->saved_data["p"] = p;
    save_place(context, place);
    context->mark_dirty({x});
    x.mul_(keep_mask(x.sizes(), x.device(), p, place)).mul_(1 / (1 - p));
    return x;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    double p = context->saved_data["p"].toDouble();
    const Tensor& gradient = gradients[0];
    auto mask = keep_mask(gradient.sizes(), gradient.device(), p, saved_place(context));
    auto x_gradient = at::mul(gradient, mask).mul_(1 / (1 - p));
    return {x_gradient, Tensor(), Tensor()};
  }
};

}  // namespace

MaskPlace Dropout::place(const ForwardContext& context, DropoutSite site) const {
  return {.key = mix64(mix64(context.dropout_key ^ mix64(block_index_)) + static_cast<uint64_t>(site)),
          .first_row = context.first_row,
          .rows = context.batch->rows};
}

Tensor Dropout::operator()(Tensor x, const ForwardContext& context, DropoutSite site) const {
  return active(context) ? DropoutFunction::apply(x, p_, place(context, site)) : x;
}

}  // namespace runner
