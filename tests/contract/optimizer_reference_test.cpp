// Updates of optimizers against published code: a few steps of each, stored by make_optimizers.py.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "strategies/contract/optimizer.hpp"
#include "strategies/contract/quantized_adam.hpp"

using namespace runner;
using nlohmann::json;

namespace {

const json& reference() {
  static const json all = json::parse(std::ifstream(RUNNER_SOURCE_DIR "/tests/contract/reference/optimizers.json"));
  return all;
}

/// The parameter (step 0) or the gradient of a step, as in make_optimizers.py.
torch::Tensor tensor_of(const std::vector<int64_t>& shape, int64_t step) {
  auto values = torch::empty({c10::multiply_integers(shape)}, torch::kFloat32);
  for (int64_t i = 0; i < values.numel(); ++i)
    values.data_ptr<float>()[i] =
        static_cast<float>(std::sin(12.9898 * static_cast<double>(i) + 78.233 * static_cast<double>(step)) *
                           (step == 0 ? 0.1 : 0.02 / static_cast<double>(step)));
  return values.view(shape);
}

OptimizerConfig config_of(const json& one) {
  const auto& settings = one.at("settings");
  OptimizerConfig config;
  config.kind = find_optimizer(one.at("optimizer"))->kind;
  config.lr = settings.at("lr");
  config.weight_decay = settings.at("weight_decay");
  if (settings.contains("betas")) {
    config.beta1 = settings["betas"][0];
    config.beta2 = settings["betas"][1];
  }
  config.eps = settings.value("eps", config.eps);
  config.scale_parameter = settings.value("scale_parameter", false);
  config.clip_threshold = settings.value("clip_threshold", 1.0);
  config.decay_rate = -settings.value("decay_rate", -0.8);
  config.momentum = 0.95;
  config.nesterov = settings.value("nesterov", true);
  config.match_rms = settings.value("adjust_lr_fn", "original") == "match_rms_adamw";
  return config;
}

/// The largest difference from the stored elements, relative to the largest of them.
double difference(const torch::Tensor& values, const json& stored) {
  const auto flat = values.detach().to(torch::kCPU, torch::kFloat64).reshape({-1}).contiguous();
  const int64_t stride = reference().at("stride");
  double most = 0, size = 1e-30;
  for (size_t k = 0; k < stored.size(); ++k) {
    const double expected = stored[k], actual = flat[static_cast<int64_t>(k) * stride].item<double>();
    most = std::max(most, std::abs(actual - expected));
    size = std::max(size, std::abs(expected));
  }
  return most / size;
}

struct Run {
  Optimizer optimizer;
  torch::Tensor parameter;
  size_t index;
};

/// `type`: dtype of the masters. Other dtypes than float32 are updated by LibTorch's operators.
Run train(const json& one, torch::ScalarType type) {
  const auto config = config_of(one);
  const std::vector<int64_t> shape = one.at("shape");
  Run run{Optimizer(config), tensor_of(shape, 0).view(-1).to(type), 0};
  run.index =
      run.optimizer.add(run.parameter, {.lr = config.lr, .weight_decay = config.weight_decay}, {}, {.shape = shape});
  for (int64_t step = 1; step <= one.at("steps"); ++step)
    run.optimizer.step({tensor_of(shape, step).view(-1).to(type) * 8}, 1.0, 8.0);
  return run;
}

}  // namespace

TEST_CASE("the values of 8-bit codes are those of bitsandbytes") {
  for (const auto& [name, map] : {std::pair("signed", signed_map()), std::pair("unsigned", unsigned_map())}) {
    const std::vector<float> expected = reference().at("maps").at(name);
    INFO(name);
    REQUIRE(expected.size() == map.size());
    for (size_t i = 0; i < map.size(); ++i) CHECK(std::abs(map[i] - expected[i]) <= 2e-7f * std::abs(expected[i]));
  }
}

TEST_CASE("updates have the results of published code") {
  std::set<std::string> compared;
  for (const auto& one : reference().at("cases"))
    for (auto type : {torch::kFloat32, torch::kFloat64}) {
      if (!find_optimizer(one.at("optimizer"))) continue;
      INFO(one.at("optimizer") << " " << one.at("shape").dump() << " " << one.at("settings").dump() << " in "
                               << c10::toString(type));
      auto run = train(one, type);
      compared.insert(one.at("optimizer"));
      // Codes of values near a bound may differ by one, and so may a product in bfloat16.
      const std::string name = one.at("optimizer");
      const double of_muon = type == torch::kFloat32 ? 1e-3 : 2e-2;
      const double tolerance = name == "adamw_8bit" ? 2e-3 : name == "muon" ? of_muon : 1e-5;
      CHECK(difference(run.parameter, one.at("parameter")) < tolerance);
      if (one.contains("average")) CHECK(difference(run.optimizer.average(run.index), one.at("average")) < 1e-5);
      const auto& states = run.optimizer.states_of(run.index);
      const auto tensors = run.optimizer.state(run.index);
      CHECK(states.size() == one.at("states").size());
      for (size_t k = 0; k < states.size(); ++k) {
        INFO(states[k].name);
        const bool codes = states[k].type == OptimizerState::Type::code;
        CHECK(difference(tensors[k], one.at("states").at(states[k].name)) < (codes ? 1.5 / 255 : tolerance));
      }
    }
  for (const auto& spec : optimizers())
    CHECK((compared.contains(spec.name) || spec.has_fused_kernel));  // those are LibTorch's own
}
