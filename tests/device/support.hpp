// What tests on the simulated device share: its tensors, and the policies that they go through.
#pragma once
#include <string>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "tests/device/simulation.hpp"

namespace runner::simulated {

inline torch::TensorOptions on_device(int index = 0) { return torch::TensorOptions().device(device_at(index)); }

struct NamedPolicy {
  std::string name;
  Policy policy;
};

/// The two extremes of what streams and events allow, and two orders between them.
inline std::vector<NamedPolicy> extreme_policies() {
  return {{"lazy", {Order::lazy}},
          {"others first", {Order::others_first}},
          {"random 1", {Order::random, 1}},
          {"random 2", {Order::random, 2}}};
}

inline std::vector<NamedPolicy> all_policies() {
  auto policies = extreme_policies();
  policies.insert(policies.begin(), {"eager", {Order::eager}});
  return policies;
}

}  // namespace runner::simulated
