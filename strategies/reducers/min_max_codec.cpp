#include "strategies/reducers/min_max_codec.hpp"

#include "strategies/reducers/bagua_plan.hpp"

namespace runner {

namespace {

struct Scale {
  torch::Tensor scale, lower;
};

/// The scale for the least and the largest value, in float32 as in Bagua's kernels.
Scale scale_of(const torch::Tensor& low, const torch::Tensor& high) {
  const auto scale = 255.0 / (high - low + 1e-7);
  return {.scale = scale, .lower = torch::round(high * scale) - 255.0};
}

}  // namespace

torch::Tensor encode_min_max(const torch::Tensor& values) {
  const auto [low, high] = torch::aminmax(values);
  const auto [scale, lower] = scale_of(low, high);
  auto codes = values * scale;
  codes.round_().sub_(lower).clamp_(0, 255).nan_to_num_(0);
  auto message = torch::zeros({min_max_bytes(values.numel())}, values.options().dtype(torch::kUInt8));
  message.narrow(0, 0, 8).copy_(torch::stack({low, high}).view(torch::kUInt8));
  message.narrow(0, min_max_alignment, values.numel()).copy_(codes);
  return message;
}

torch::Tensor decode_min_max(const torch::Tensor& message, int64_t elements) {
  const auto range = message.narrow(0, 0, 8).clone().view(torch::kFloat32);
  const auto [scale, lower] = scale_of(range[0], range[1]);
  auto values = message.narrow(0, min_max_alignment, elements).to(torch::kFloat32);
  return values.add_(lower).div_(scale);
}

}  // namespace runner
