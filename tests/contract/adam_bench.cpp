// Measures parameters per second of Adam on the CPU: our kernel, our kernel with a bf16 copy, and LibTorch's fused
// kernel. One JSON line each.
#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/optimizer.hpp"

using namespace runner;

namespace {

double seconds_of(const std::function<void()>& work) {
  auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  int64_t count = argc > 1 ? std::stoll(argv[1]) : 20'000'000;
  int threads = argc > 2 ? std::stoi(argv[2]) : at::get_num_threads();
  at::set_num_threads(threads);
  torch::NoGradGuard no_grad;
  auto gradient = torch::randn({count}), narrow_gradient = gradient.to(torch::kBFloat16);
  Optimizer plain({}), copying({});
  plain.add(torch::randn({count}), {});
  copying.add(torch::randn({count}), {}, torch::empty({count}, torch::kBFloat16));
  std::vector<at::Tensor> p{torch::randn({count})}, g{gradient}, m{torch::zeros({count})}, v{torch::zeros({count})},
      steps{torch::full({}, 1.0)};
  struct Row {
    const char* name;
    std::function<void()> step;
    std::vector<double> seconds;
  };
  std::vector<Row> rows{
      {"ours", [&] { plain.step({gradient}, 1.0, 1.0); }, {}},
      {"ours, bf16 gradients and copy", [&] { copying.step({narrow_gradient}, 1.0, 1.0); }, {}},
      {"at::_fused_adamw_",
       [&] { at::_fused_adamw_(p, g, m, v, {}, steps, 1e-3, 0.9, 0.999, 0.01, 1e-8, false, false, {}, {}); },
       {}},
  };
  for (int round = 0; round < 12; ++round)  // alternating, so noise affects all alike
    for (auto& row : rows) {
      double seconds = seconds_of(row.step);
      if (round > 1) row.seconds.push_back(seconds);
    }
  for (auto& row : rows) {
    std::sort(row.seconds.begin(), row.seconds.end());
    double median = row.seconds[row.seconds.size() / 2];
    std::cout << nlohmann::json{{"kernel", row.name},
                                {"threads", threads},
                                {"parameters", count},
                                {"parameters_per_s", static_cast<double>(count) / median}}
                     .dump()
              << "\n";
  }
}
