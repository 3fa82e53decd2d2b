// Parameter groups of the optimizer. Their rates are absolute, and the schedule's factor multiplies them.
#include "strategies/contract/optimizer.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace runner;

TEST_CASE("the rate of a group is absolute: with lr = 0 only the parameters of that group change") {
  for (const auto& spec : optimizers()) {
    if (spec.reach == OptimizerSpec::Reach::matrix) continue;  // the size of their first step depends on the matrix
    OptimizerConfig config;
    config.kind = spec.kind;
    config.lr = 0;
    config.groups = {{"head.*", 0.5, 0.0}};
    ParameterSpec head, body;
    head.name = "head.weight";
    body.name = "body.weight";
    head.shape = body.shape = {2, 2};
    Optimizer optimizer(config), scheduled(config);
    auto frozen = torch::ones({2, 2}), moving = torch::ones({2, 2}), half = torch::ones({2, 2});
    optimizer.add(frozen, group_of(body, config));
    optimizer.add(moving, group_of(head, config));
    scheduled.add(half, group_of(head, config));
    optimizer.step({torch::ones({2, 2}), torch::ones({2, 2})}, 1.0, 1.0);
    scheduled.step({torch::ones({2, 2})}, 0.5, 1.0);
    CHECK(torch::equal(frozen, torch::ones({2, 2})));
    // With a gradient of one, the first step of each optimizer equals the rate.
    CHECK(torch::allclose(moving, torch::full({2, 2}, 0.5), 1e-5));
    CHECK(torch::allclose(half, torch::full({2, 2}, 0.75), 1e-5));
  }
}

TEST_CASE("parameters of groups with optimizers of their own change as under those optimizers alone") {
  const auto draw = [] { return torch::linspace(-1, 2, 12); };
  OptimizerConfig config;
  for (const auto& spec : optimizers()) {
    OptimizerConfig own;
    own.kind = spec.kind;
    own.lr = 0.05;
    own.momentum = 0.9;
    own.beta1 = 0.8;
    own.eps = 1e-3;
    config.others.push_back(own);
    config.groups.push_back(
        {.pattern = spec.name, .lr = own.lr, .weight_decay = 0.1, .optimizer = config.others.size()});
  }
  Optimizer together(config);
  std::vector<torch::Tensor> values, gradients;
  for (const auto& spec : optimizers()) {
    ParameterSpec parameter;
    parameter.name = spec.name;
    parameter.shape = {3, 4};
    values.push_back(draw());
    gradients.push_back(draw().sin());
    together.add(values.back(), group_of(parameter, config), {}, {.shape = parameter.shape});
  }
  for (int step = 0; step < 3; ++step) together.step(gradients, 0.5, 1.0);
  for (size_t i = 0; i < values.size(); ++i) {
    if (config.others[i].spec().averages) continue;  // the weights of an average belong to the whole optimizer
    INFO(config.groups[i].pattern);
    Optimizer alone(config.others[i]);
    auto value = draw();
    alone.add(value, {.lr = 0.05, .weight_decay = 0.1}, {}, {.shape = {3, 4}});
    for (int step = 0; step < 3; ++step) alone.step({gradients[i]}, 0.5, 1.0);
    CHECK(torch::equal(values[i], value));
  }
}

namespace {
ParameterSpec parameter_of(const std::string& name, int64_t layers_above) {
  ParameterSpec parameter;
  parameter.name = name;
  parameter.shape = {2, 2};
  parameter.layers_above = layers_above;
  return parameter;
}
}  // namespace

TEST_CASE("layer_decay gives each layer a lower rate than the layer above it, as BEiT and timm do") {
  OptimizerConfig config;
  config.lr = 1;
  config.layer_decay = 0.5;
  config.groups = {{.pattern = "*.bias", .lr = {}, .weight_decay = {}, .lr_factor = 3},
                   {.pattern = "*.fixed", .lr = 0.25, .weight_decay = {}}};
  // Depth 2: decay^(depth + 1 - layer id), where the embedding has id 0, block i has i + 1, and the head has depth + 1.
  CHECK(group_of(parameter_of("head.weight", 0), config).lr == 1);
  CHECK(group_of(parameter_of("blocks.1.weight", 1), config).lr == 0.5);
  CHECK(group_of(parameter_of("blocks.0.weight", 2), config).lr == 0.25);
  CHECK(group_of(parameter_of("embedding.weight", 3), config).lr == 0.125);
  CHECK(group_of(parameter_of("blocks.0.bias", 2), config).lr == 0.75);   // a factor of the rate of its layer
  CHECK(group_of(parameter_of("blocks.0.fixed", 2), config).lr == 0.25);  // a rate of its own
}

TEST_CASE("an optimizer keeps the state tensors that its spec names") {
  for (const auto& spec : optimizers())
    for (double momentum : {0.0, 0.9}) {
      INFO(spec.name << ", momentum " << momentum);
      OptimizerConfig config;
      config.kind = spec.kind;
      config.momentum = momentum;
      Optimizer optimizer(config);
      auto parameter = torch::ones({4});
      optimizer.add(parameter, {.lr = 0.1});
      optimizer.step({torch::ones({4})}, 1.0, 1.0);
      optimizer.step({torch::ones({4})}, 1.0, 1.0);
      const auto state = optimizer.state(0);
      CHECK(state.size() == spec.states_for({4}, true, !spec.state_names(momentum).empty()).size());
      for (const auto& tensor : state)
        CHECK(tensor.count_nonzero().item<int64_t>() == tensor.numel());  // the update has written it
      CHECK(find_optimizer(spec.name) == &spec);
      CHECK(&optimizer_spec(spec.kind) == &spec);
    }
  CHECK_FALSE(find_optimizer("lamb"));
}
