// Checks that two tiny trainings gave the same bits. For the test's thread.
#pragma once
#include <algorithm>
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

/// NaNs are equal: a skipped step has no norm.
inline bool same_norms(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

/// Also the norms.
inline void check_equal_with_norms(const TinyResult& a, const TinyResult& b) {
  check_equal(a, b);
  CHECK(same_norms(a.norms, b.norms));
}

}  // namespace runner::testing
