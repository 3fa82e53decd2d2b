// Runs on meshes for the tests of this folder, and what they are compared with. For the test's thread.
#pragma once
#include "tests/support/equal_training.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

/// A mesh, and the strategy of its data ranks.
struct MeshLine {
  int pipeline, data, context, tensor;
  std::string strategy;
  nlohmann::json options = nlohmann::json::object();
};

inline void put_on_mesh(TinyRun& run, const MeshLine& mesh) {
  run.pipeline = mesh.pipeline;
  run.context = mesh.context;
  run.tensor = mesh.tensor;
  run.world_size = mesh.pipeline * mesh.data * mesh.context * mesh.tensor;
  run.strategy = mesh.strategy;
  run.options = mesh.options;
}

inline TinyRun run_in_float64() {
  at::set_num_threads(1);
  TinyRun run;
  run.precision = "64-true";
  run.optimizer = {.kind = OptimizerConfig::Kind::sgd, .lr = 0.1, .groups = {}};
  run.steps = 3;
  return run;
}

inline void check_close(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    INFO(fmt::format("{}: {:.17g} and {:.17g}", i, actual[i], expected[i]));
    CHECK(std::abs(actual[i] - expected[i]) <= tolerance * std::abs(expected[i]));
  }
}

/// Losses, norms and all tensors of the training state. They are collected in fp32.
inline void check_same_training(const TinyResult& actual, const TinyResult& expected) {
  check_close(actual.losses, expected.losses, 1e-12);
  check_close(actual.norms, expected.norms, 1e-11);
  REQUIRE(actual.state.size() == expected.state.size());
  for (const auto& [name, values] : expected.state) {
    INFO(name);
    const auto& other = actual.state.at(name);
    REQUIRE(other.size() == values.size());
    double most = 0, largest = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      most = std::max(most, std::abs(static_cast<double>(values[i]) - other[i]));
      largest = std::max(largest, std::abs(static_cast<double>(values[i])));
      if (std::isnan(other[i])) most = std::numeric_limits<double>::infinity();
    }
    constexpr double rounding = 1e-14;  // of a bias of keys that shifts all scores alike: its gradient is 0
    CHECK(most <= 3e-7 * largest + rounding);
  }
}

}  // namespace runner::testing
