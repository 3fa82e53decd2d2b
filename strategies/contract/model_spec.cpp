#include "strategies/contract/model_spec.hpp"

#include "runner/base/error.hpp"

namespace runner {

int64_t BlockSpec::parameter_count() const {
  int64_t count = 0;
  for (const auto& parameter : parameters) count += parameter.numel();
  return count;
}

int64_t ModelSpec::parameter_count() const {
  int64_t count = 0;
  for (const auto& block : blocks) count += block.parameter_count();
  return count;
}

double ModelSpec::training_flops_per_token() const {
  double forward = 0;
  for (const auto& block : blocks) forward += block.forward_flops_per_token;
  return 3 * forward;
}

std::vector<const ParameterSpec*> ModelSpec::parameters() const {
  std::vector<const ParameterSpec*> all;
  for (const auto& block : blocks)
    for (const auto& parameter : block.parameters) all.push_back(&parameter);
  return all;
}

int64_t ModelSpec::numel(size_t slot) const {
  for (const auto& block : blocks) {
    if (slot < block.parameters.size()) return block.parameters[slot].numel();
    slot -= block.parameters.size();
  }
  RUNNER_CHECK(false, "no parameter in slot {}", slot);
  return 0;
}

size_t ModelSpec::slot(const std::string& parameter_name) const {
  size_t index = 0;
  for (const auto* parameter : parameters()) {
    if (parameter->name == parameter_name) return index;
    ++index;
  }
  RUNNER_CHECK(false, "no parameter `{}` in the model", parameter_name);
  return 0;
}

}  // namespace runner
