// The state tensors that an optimizer keeps for each parameter. Torch-free.
#pragma once
#include <string>
#include <vector>

namespace runner {

/// Names of the tensors, each of the parameter's size. `optimizer`: "adamw", "adam" or "sgd". Plain SGD has none.
inline std::vector<std::string> state_names_of(const std::string& optimizer, double momentum) {
  if (optimizer != "sgd") return {"exp_avg", "exp_avg_sq"};
  if (momentum == 0.0) return {};
  return {"momentum_buffer"};
}

}  // namespace runner
