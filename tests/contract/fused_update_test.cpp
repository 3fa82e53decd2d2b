// Updates of masters that are not in float32, against formulas in float64: 16-bit ones on the CPU, and the divisor of float64 gradients.
#include "strategies/contract/optimizer.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>

using namespace runner;

namespace {

constexpr auto wide = torch::kFloat64;

struct Sgd {
  double lr = 0.1, weight_decay = 0, momentum = 0, divisor = 1;
  bool nesterov = false;
};

struct Tensors {
  torch::Tensor parameter, momentum;
};

/// One update of PyTorch's SGD, in float64.
Tensors sgd_formula(const Sgd& sgd, const Tensors& before, const torch::Tensor& gradient, bool first_step) {
  auto change = gradient.to(wide) / sgd.divisor + before.parameter.to(wide) * sgd.weight_decay;
  torch::Tensor momentum;
  if (sgd.momentum != 0) {
    momentum = first_step ? change.clone() : before.momentum.to(wide) * sgd.momentum + change;
    change = sgd.nesterov ? change + momentum * sgd.momentum : momentum;
  }
  return {before.parameter.to(wide) - change * sgd.lr, momentum};
}

OptimizerConfig config_of(const Sgd& sgd) {
  OptimizerConfig config;
  config.kind = OptimizerKind::sgd;
  config.momentum = sgd.momentum;
  config.nesterov = sgd.nesterov;
  return config;
}

/// `values` are `expected` rounded. Float32 has errors in the sums, which can be up to 20, and a result next to the middle of two values
/// in 16 bits may be rounded to the other one.
void check_rounded(const torch::Tensor& values, const torch::Tensor& expected) {
  const auto rounded = expected.to(values.scalar_type());
  const double ulp = values.scalar_type() == torch::kBFloat16 ? 0x1p-7 : 0x1p-10;  // relative, of a power of two
  CHECK(((values.to(wide) - expected).abs() <= expected.abs() * ulp + 5e-6).all().item<bool>());
  CHECK((values != rounded).to(wide).mean().item<double>() < 1e-2);
}

}  // namespace

TEST_CASE("SGD with 16-bit masters on the CPU has the results of the formula, rounded", "[optimizers]") {
  const auto type = GENERATE(torch::kBFloat16, torch::kFloat16);
  const auto sgd = GENERATE(Sgd{}, Sgd{.weight_decay = 0.1, .divisor = 3.7}, Sgd{.momentum = 0.9},
                            Sgd{.weight_decay = 0.1, .momentum = 0.9, .divisor = 0.3},
                            Sgd{.weight_decay = 0.1, .momentum = 0.9, .divisor = 8, .nesterov = true});
  const auto gradient_type = GENERATE_COPY(type, torch::kFloat32);
  INFO(c10::toString(type) << ", gradients in " << c10::toString(gradient_type) << ", momentum " << sgd.momentum
                           << ", decay " << sgd.weight_decay << ", divisor " << sgd.divisor);
  torch::manual_seed(5);
  Optimizer optimizer(config_of(sgd));
  // The first one is updated in several pieces, the last of them not full. The other two are in a group with a lower rate.
  const std::vector<std::vector<int64_t>> shapes{{3, 50'001}, {7}, {40, 50}};
  std::vector<torch::Tensor> parameters, copies;
  std::vector<Sgd> settings;
  for (const auto& shape : shapes) {
    Sgd own = sgd;
    if (!parameters.empty()) own.lr = 0.01;
    settings.push_back(own);
    parameters.push_back(torch::randn(shape).to(type));
    copies.push_back(torch::zeros(shape));
    optimizer.add(parameters.back(), {.lr = own.lr, .weight_decay = own.weight_decay}, copies.back());
  }
  for (int64_t step = 1; step <= 3; ++step) {
    std::vector<torch::Tensor> gradients;
    std::vector<Tensors> expected;
    for (size_t i = 0; i < shapes.size(); ++i) {
      gradients.push_back(torch::randn(shapes[i]).to(gradient_type));
      const Tensors before{parameters[i],
                           sgd.momentum != 0 ? optimizer.state(i).front().view(shapes[i]) : torch::Tensor()};
      expected.push_back(sgd_formula(settings[i], before, gradients[i], step == 1));
    }
    optimizer.step(gradients, 1.0, sgd.divisor);
    for (size_t i = 0; i < shapes.size(); ++i) {
      INFO("step " << step << ", parameter " << i);
      check_rounded(parameters[i], expected[i].parameter);
      CHECK(torch::equal(copies[i], parameters[i].to(torch::kFloat32)));
      if (sgd.momentum != 0) check_rounded(optimizer.state(i).front().view(shapes[i]), expected[i].momentum);
    }
  }
}

TEST_CASE("every optimizer stores 16-bit parameters on the CPU, by pieces of a tensor with the same bits",
          "[optimizers]") {
  for (const auto& spec : optimizers())
    for (const auto type : {torch::kBFloat16, torch::kFloat16}) {
      INFO(spec.name << " in " << c10::toString(type));
      OptimizerConfig config;
      config.kind = spec.kind;
      config.momentum = 0.9;
      torch::manual_seed(6);
      const auto before = torch::randn({4 * 4096}).to(type), gradient = torch::randn({4 * 4096}).to(type);
      auto whole = before.clone();
      Optimizer optimizer(config);
      optimizer.add(whole, {.lr = 0.1}, {}, {.shape = {4, 4096}});
      optimizer.step({gradient.clone()}, 1.0, 2.0);
      // Some steps of sgd, adafactor and muon are too small for a parameter in 16 bits.
      CHECK((whole != before).to(wide).mean().item<double>() > 0.8);
      if (spec.reach == OptimizerSpec::Reach::matrix) continue;
      auto cut = before.clone();
      Optimizer of_pieces(config);
      std::vector<torch::Tensor> gradients;
      for (const auto& [begin, count] : {std::pair(0, 4096), std::pair(4096, 8192), std::pair(12288, 4096)}) {
        of_pieces.add(cut.narrow(0, begin, count), {.lr = 0.1}, {}, {.shape = {4, 4096}, .offset = begin});
        gradients.push_back(gradient.narrow(0, begin, count).clone());
      }
      of_pieces.step(gradients, 1.0, 2.0);
      CHECK(torch::equal(cut, whole));
    }
}

namespace {

constexpr double divisor = (3.3 + 1e-6) / 0.7;  // of clipping: a quotient that float32 cannot represent

double relative_error(const torch::Tensor& values, const torch::Tensor& expected) {
  return ((values - expected).abs() / expected.abs().clamp_min(1)).max().item<double>();
}

}  // namespace

TEST_CASE("clipped gradients of float64 masters are divided in float64: SGD", "[optimizers]") {
  const Sgd sgd{.weight_decay = 0.1, .momentum = GENERATE(0.0, 0.9), .divisor = divisor};
  torch::manual_seed(7);
  auto parameter = torch::randn({1000}, wide);
  Optimizer optimizer(config_of(sgd));
  optimizer.add(parameter, {.lr = sgd.lr, .weight_decay = sgd.weight_decay});
  Tensors expected{parameter.clone(), {}};
  for (int64_t step = 1; step <= 3; ++step) {
    const auto gradient = torch::randn({1000}, wide);
    expected = sgd_formula(sgd, expected, gradient, step == 1);
    optimizer.step({gradient.clone()}, 1.0, sgd.divisor);
    CHECK(relative_error(parameter, expected.parameter) < 1e-14);
  }
}

TEST_CASE("clipped gradients of float64 masters are divided in float64: Adam and AdamW", "[optimizers]") {
  OptimizerConfig config;
  config.kind = GENERATE(OptimizerKind::adamw, OptimizerKind::adam);
  config.eps = 0.1;  // with a small one, the size of the gradients cancels out
  constexpr double lr = 0.01, decay = 0.1;
  torch::manual_seed(8);
  auto parameter = torch::randn({1000}, wide), expected = parameter.clone();
  auto first = torch::zeros({1000}, wide), second = torch::zeros({1000}, wide);
  Optimizer optimizer(config);
  optimizer.add(parameter, {.lr = lr, .weight_decay = decay});
  for (int step = 1; step <= 3; ++step) {
    const auto given = torch::randn({1000}, wide);
    optimizer.step({given.clone()}, 1.0, divisor);
    auto gradient = given / divisor;
    if (config.kind == OptimizerKind::adamw)
      expected = expected * (1 - lr * decay);
    else
      gradient = gradient + expected * decay;
    first = first * config.beta1 + gradient * (1 - config.beta1);
    second = second * config.beta2 + gradient * gradient * (1 - config.beta2);
    const auto root = (second / (1 - std::pow(config.beta2, step))).sqrt() + config.eps;
    expected = expected - lr / (1 - std::pow(config.beta1, step)) * first / root;
    CHECK(relative_error(parameter, expected) < 1e-14);
  }
}
