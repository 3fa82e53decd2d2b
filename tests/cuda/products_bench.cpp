// Measures matrix products of LibTorch on a device, and their fraction of the peak in schemas/devices.toml. One JSON line for each
// dtype: bench_products [DEVICE [WIDTH]]; DEVICE is "cuda" or "cpu".
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include <torch/cuda.h>
#include "runner/base/clock.hpp"
#include "runner/cuda/module.hpp"
#include "runner/devices/devices.hpp"
#include "runner/selection/device_kinds.hpp"
#include "strategies/collective/libtorch.hpp"

using namespace runner;

namespace {

/// Floating-point operations a second: the best of several rounds of `repeats` products.
double product_rate(torch::Device device, torch::ScalarType dtype, int64_t width) {
  constexpr int rounds = 5, repeats = 10;
  auto options = torch::dtype(dtype).device(device);
  auto a = torch::randn({width, width}, torch::kFloat32).to(options),
       b = torch::randn({width, width}, torch::kFloat32).to(options), c = torch::empty({width, width}, options);
  const auto finish = [&] {
    if (device.is_cuda()) torch::cuda::synchronize();
  };
  at::mm_out(c, a, b);  // loads the kernels
  finish();
  double fastest = std::numeric_limits<double>::infinity();
  for (int round = 0; round < rounds; ++round) {
    const double begun = steady_seconds();
    for (int i = 0; i < repeats; ++i) at::mm_out(c, a, b);
    finish();
    fastest = std::min(fastest, steady_seconds() - begun);
  }
  const auto n = static_cast<double>(width);
  return 2 * n * n * n * repeats / fastest;
}

}  // namespace

int main(int argc, char** argv) {
  const bool cuda = argc < 2 || std::string(argv[1]) == "cuda";
  const int64_t width = argc > 2 ? std::stoll(argv[2]) : 8192;
  torch::NoGradGuard no_grad;
  if (cuda) use_cuda(0);
  const Facts facts = read_facts();
  const std::string name = cuda && !facts.devices.empty() ? facts.devices[0].name : facts.cpu;
  const DeviceKind* kind = cuda ? kind_of_device(name) : nullptr;
  for (auto [label, torch_type, type] :
       {std::tuple{"fp32", torch::kFloat32, DType::float32}, std::tuple{"fp16", torch::kFloat16, DType::float16},
        std::tuple{"bf16", torch::kBFloat16, DType::bfloat16}}) {
    const double rate = product_rate(cuda ? torch::kCUDA : torch::kCPU, torch_type, width);
    nlohmann::json row{
        {"device", name}, {"dtype", label}, {"width", width}, {"flops_per_s", rate}, {"fraction_of_peak", nullptr}};
    if (kind && kind->peak_flops(type) > 0) row["fraction_of_peak"] = rate / kind->peak_flops(type);
    std::cout << row.dump() << "\n";
  }
}
