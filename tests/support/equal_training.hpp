// Checks that two tiny trainings gave the same bits. For the test's thread.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tests/support/tiny_training.hpp"

namespace runner::testing {

/// The largest absolute difference of two elements.
inline double most_apart(const torch::Tensor& a, const torch::Tensor& b) { return (a - b).abs().max().item<double>(); }

/// Losses and every tensor of the training state.
inline void check_equal(const TinyResult& a, const TinyResult& b) {
  CHECK(a.losses == b.losses);
  REQUIRE(a.state.size() == b.state.size());
  for (const auto& [name, values] : a.state) {
    INFO(name);
    CHECK(values == b.state.at(name));
  }
}

/// Also the norms, of which two NaNs are equal.
inline void check_equal_with_norms(const TinyResult& a, const TinyResult& b) {
  check_equal(a, b);
  REQUIRE(a.norms.size() == b.norms.size());
  for (size_t i = 0; i < a.norms.size(); ++i)
    CHECK((a.norms[i] == b.norms[i] || (std::isnan(a.norms[i]) && std::isnan(b.norms[i]))));
}

}  // namespace runner::testing
