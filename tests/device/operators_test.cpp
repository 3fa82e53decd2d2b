// Operators on the simulated device have the CPU's bits under every policy; autocast follows CUDA's lists.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "strategies/collective/libtorch.hpp"
#include "tests/device/support.hpp"
#include "tests/support/hashed_weights.hpp"

using namespace runner::simulated;
using torch::Tensor;

namespace {

/// A small transformer with everything that training one calls: embedding, norms, attention, loss, AdamW.
class TinyTransformer {
 public:
  explicit TinyTransformer(torch::Device device) : device_(device) {
    auto generator = at::detail::createCPUGenerator(5);
    auto add = [&](at::IntArrayRef sizes) {
      parameters_.push_back((at::randn(sizes, generator) * 0.05).to(device).requires_grad_(true));
    };
    add({vocab, dim});
    for (int64_t layer = 0; layer < layers; ++layer)
      for (const auto& sizes :
           std::vector<std::vector<int64_t>>{{dim}, {3 * dim, dim}, {dim, dim}, {dim}, {4 * dim, dim}, {dim, 4 * dim}})
        add(sizes);
    for (const auto& parameter : parameters_) {
      first_.push_back(torch::zeros_like(parameter));
      second_.push_back(torch::zeros_like(parameter));
      steps_.push_back(torch::zeros({}, torch::TensorOptions().device(device)));
    }
  }

  double step(int64_t k) {
    auto i = torch::arange(4 * (tokens + 1)) + k;
    auto rows = runner::testing::hashed_token(i, vocab).view({4, tokens + 1});
    auto loss = forward(rows.narrow(1, 0, tokens).to(device_), rows.narrow(1, 1, tokens).contiguous().to(device_));
    loss.backward();
    torch::NoGradGuard no_grad;
    std::vector<Tensor> gradients;
    for (auto& parameter : parameters_) gradients.push_back(parameter.grad());
    for (auto& step : steps_) step.add_(1);
    at::_fused_adamw_(parameters_, gradients, first_, second_, {}, steps_, 1e-2, 0.9, 0.95, 0.1, 1e-8, false, false);
    for (auto& parameter : parameters_) parameter.mutable_grad().reset();
    return loss.item<double>();
  }

  std::vector<Tensor> on_cpu() const {
    std::vector<Tensor> copies;
    for (const auto& parameter : parameters_) copies.push_back(parameter.detach().cpu());
    return copies;
  }

 private:
  static constexpr int64_t vocab = 31, dim = 32, layers = 2, heads = 4, tokens = 16;

  Tensor forward(const Tensor& inputs, const Tensor& targets) const {
    size_t next = 0;
    auto take = [&]() -> const Tensor& { return parameters_[next++]; };
    const Tensor& table = take();
    auto x = torch::embedding(table, inputs);
    auto future =
        torch::ones({tokens, tokens}, torch::TensorOptions().dtype(torch::kBool).device(device_)).tril().logical_not();
    for (int64_t layer = 0; layer < layers; ++layer) {
      auto normed = torch::layer_norm(x, {dim}, take() + 1);
      auto qkv = torch::linear(normed, take()).view({4, tokens, 3, heads, dim / heads}).permute({2, 0, 3, 1, 4});
      auto scores = torch::matmul(qkv[0], qkv[1].transpose(-2, -1)) / std::sqrt(double(dim / heads));
      auto weights = torch::softmax(scores.masked_fill(future, -INFINITY), -1);
      x = x + torch::linear(torch::matmul(weights, qkv[2]).transpose(1, 2).reshape({4, tokens, dim}), take());
      auto again = torch::layer_norm(x, {dim}, take() + 1);
      auto up = torch::gelu(torch::linear(again, take()));
      x = x + torch::linear(up, take());
    }
    return torch::cross_entropy_loss(torch::linear(x, table).view({-1, vocab}), targets.view(-1));
  }

  torch::Device device_;
  std::vector<Tensor> parameters_, first_, second_, steps_;
};

struct Training {
  std::vector<double> losses;
  std::vector<Tensor> parameters;
};

Training train(torch::Device device) {
  TinyTransformer model(device);
  Training result;
  for (int64_t k = 0; k < 4; ++k) result.losses.push_back(model.step(k));
  result.parameters = model.on_cpu();
  return result;
}

}  // namespace

TEST_CASE("a training on the simulated device has the CPU's bits under every policy", "[device]") {
  at::set_num_threads(1);
  auto cpu = train(torch::kCPU);
  for (const auto& [name, policy] : all_policies()) {
    INFO(name);
    Simulation simulation(policy);
    auto device = train(device_at(0));
    CHECK(device.losses == cpu.losses);
    for (size_t i = 0; i < cpu.parameters.size(); ++i) CHECK(torch::equal(device.parameters[i], cpu.parameters[i]));
    CHECK(take_reports() == std::vector<std::string>());
    CHECK(operator_counts().waited.empty());
  }
}

TEST_CASE("operators whose results depend on data make the host wait", "[device]") {
  Simulation simulation;
  auto x = torch::arange(6, torch::TensorOptions().device(device_at(0)));
  auto positions = torch::nonzero(x.remainder(2) == 0);
  CHECK(torch::equal(positions.cpu(), torch::tensor({{0}, {2}, {4}})));
  CHECK(torch::equal(x.masked_select(x > 3).cpu(), torch::tensor({4, 5})));
  auto waited = operator_counts().waited;
  CHECK(waited.size() == 2);
  CHECK(waited.count("aten::nonzero") == 1);
}

TEST_CASE("random numbers do not depend on when kernels run", "[device]") {
  std::vector<Tensor> draws;
  for (const auto& [name, policy] : all_policies()) {
    Simulation simulation(policy);
    auto generator = at::globalContext().defaultGenerator(device_at(0)).clone();
    generator.set_current_seed(7);
    auto first = torch::empty({100}, torch::TensorOptions().device(device_at(0))), second = torch::empty_like(first);
    first.bernoulli_(0.5, generator);
    second.bernoulli_(0.5, generator);
    draws.push_back(torch::stack({first, second}).cpu());
    CHECK(!torch::equal(draws.back()[0], draws.back()[1]));
    CHECK(torch::equal(draws.back(), draws.front()));
  }
}

TEST_CASE("tensors that are viewed, resized and filled from others keep their contents", "[device]") {
  Simulation simulation;
  auto on_device = torch::TensorOptions().device(device_at(0));
  auto x = torch::arange(12, on_device);
  CHECK(torch::equal(x.view({3, 4}).t().contiguous().cpu(), torch::arange(12).view({3, 4}).t().contiguous()));
  x.resize_({20});
  CHECK(torch::equal(x.narrow(0, 0, 12).cpu(), torch::arange(12)));
  auto y = torch::empty({0}, on_device.dtype(torch::kInt64));
  y.set_(x.storage(), 2, {3}, {1});
  CHECK(torch::equal(y.cpu(), torch::tensor({2, 3, 4})));
  CHECK_THROWS_WITH(x + torch::ones({20}),
                    Catch::Matchers::ContainsSubstring("Expected all tensors to be on the same device"));
  CHECK(torch::equal((y + torch::tensor(1)).cpu(), torch::tensor({3, 4, 5})));
}

TEST_CASE("autocast casts as on CUDA: products to the lower precision, norms, softmax and losses to float32",
          "[device]") {
  Simulation simulation;
  auto a = torch::ones({4, 4}, torch::TensorOptions().device(device_at(0)));
  at::autocast::set_autocast_dtype(device_type, torch::kBFloat16);
  at::autocast::set_autocast_enabled(device_type, true);
  auto product = torch::mm(a, a), linear = torch::linear(a, a);
  auto norm = torch::layer_norm(product, {4}), weights = torch::softmax(product, -1), sum = product.sum();
  auto mixed = torch::addcmul(a, product, product), power = product.pow(2);
  at::autocast::set_autocast_enabled(device_type, false);
  at::autocast::clear_cache();
  CHECK(product.scalar_type() == torch::kBFloat16);
  CHECK(linear.scalar_type() == torch::kBFloat16);
  CHECK(norm.scalar_type() == torch::kFloat32);
  CHECK(weights.scalar_type() == torch::kFloat32);
  CHECK(sum.scalar_type() == torch::kFloat32);
  CHECK(mixed.scalar_type() == torch::kFloat32);
  CHECK(power.scalar_type() == torch::kFloat32);
}
