// The family of optimizers: what recipes, the planner and the executor must know of each. Torch-free.
#pragma once
#include <string>
#include <vector>

namespace runner {

enum class OptimizerKind { adamw, adam, sgd };

struct OptimizerSpec {
  OptimizerKind kind;
  std::string name;                         ///< optimizer.name in recipes
  std::vector<std::string> keys;            ///< the keys of [optimizer] that not every optimizer reads
  std::vector<std::string> states;          ///< the names of its state tensors, each of the parameter's size
  bool states_need_momentum = false;        ///< without momentum it keeps no state
  bool decays_apart_from_gradient = false;  ///< weight decay shrinks the weights directly (AdamW)
  /// It has a kernel for fp32 masters in host memory (contract/adam.hpp). The kernel reads gradients of any dtype without a
  /// copy, and updates state that is in a file.
  bool has_host_kernel = false;

  std::vector<std::string> state_names(double momentum) const {
    return states_need_momentum && momentum == 0.0 ? std::vector<std::string>() : states;
  }
};

/// In the order in which messages list them.
inline const std::vector<OptimizerSpec>& optimizers() {
  static const std::vector<OptimizerSpec> list = {
      {.kind = OptimizerKind::adamw,
       .name = "adamw",
       .keys = {"betas", "eps"},
       .states = {"exp_avg", "exp_avg_sq"},
       .decays_apart_from_gradient = true,
       .has_host_kernel = true},
      {.kind = OptimizerKind::adam,
       .name = "adam",
       .keys = {"betas", "eps"},
       .states = {"exp_avg", "exp_avg_sq"},
       .has_host_kernel = true},
      {.kind = OptimizerKind::sgd,
       .name = "sgd",
       .keys = {"momentum", "nesterov"},
       .states = {"momentum_buffer"},
       .states_need_momentum = true},
  };
  return list;
}

inline const OptimizerSpec& optimizer_spec(OptimizerKind kind) {
  for (const auto& spec : optimizers())
    if (spec.kind == kind) return spec;
  return optimizers().front();
}

/// nullptr if there is no optimizer of this name.
inline const OptimizerSpec* find_optimizer(const std::string& name) {
  for (const auto& spec : optimizers())
    if (spec.name == name) return &spec;
  return nullptr;
}

/// The names of the optimizers for which `has` is true.
template <typename Has>
std::vector<std::string> optimizer_names(Has&& has) {
  std::vector<std::string> names;
  for (const auto& spec : optimizers())
    if (has(spec)) names.push_back(spec.name);
  return names;
}

}  // namespace runner
