// Trains matrices for an inference in few bits: blocks compute with rounded values, and gradients pass through the rounding.
#include <runner/plugins/torch_parts.hpp>

using runner::plugin::Options;
using runner::torch_parts::GradientPart;
using torch::Tensor;

namespace {

class FakeQuantization final : public runner::torch_parts::Precision {
 public:
  explicit FakeQuantization(const Options& options)
      : mode_(options.text("mode", "auto")),
        parameters_(options.text("parameters", "blocks.*.weight")),
        bits_(options.integer("bits", 4)),
        largest_(options.number("largest_gradient", 0)) {
    if (bits_ < 2 || bits_ > 8) throw std::invalid_argument("bits must be 2 to 8");
  }

  runner::torch_parts::PrecisionFacts facts() const override { return {.mode = mode_, .parameters = {parameters_}}; }

  /// One scale for the complete parameter.
  Tensor parameter(const Tensor& value, const std::string&) override {
    const auto levels = static_cast<double>((1 << (bits_ - 1)) - 1);
    const Tensor step = value.detach().abs().amax().clamp_min(1e-12) / levels;
    const Tensor rounded = value.detach().div(step).round_().mul_(step);
    return value + rounded.sub_(value.detach());
  }

  /// The loss scale is taken out: the limit is that of the true gradient.
  void gradient(const Tensor& gradient, const GradientPart& part) override {
    if (largest_ > 0) gradient.clamp_(-largest_ * part.scale, largest_ * part.scale);
  }

 private:
  std::string mode_, parameters_;
  int64_t bits_;
  double largest_;
};

}  // namespace

RUNNER_TORCH_PARTS(.precision = [](const Options& options) -> std::unique_ptr<runner::torch_parts::Precision> {
  return std::make_unique<FakeQuantization>(options);
})
