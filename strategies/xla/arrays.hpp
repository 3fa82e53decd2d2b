// The arrays of a training on each device: parameters, and what the optimizer keeps for them; and how parameters come to a device and
// gradients leave it: gathers and reductions of the parameters of a unit, as one collective each.
#pragma once
#include <vector>

#include "strategies/contract/optimizer.hpp"
#include "strategies/pjrt/module_text.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner::xla {

/// A parameter. If it is sharded, device r has elements [r * part, (r + 1) * part) of the flattened parameter, and zeros behind its end.
struct ParameterArray {
  size_t slot = 0;    ///< of the model
  pjrt::Shape shape;  ///< of the whole parameter
  int64_t numel = 0;  ///< of the whole parameter
  int64_t part = 0;   ///< elements that each device has
  bool sharded = false;
  bool trained = true;
  size_t unit = 0;   ///< of the plan: its parameters are gathered, and its gradients reduced, as one
  size_t group = 0;  ///< index of its settings

  pjrt::Type type(pjrt::ElementType master) const { return {master, sharded ? pjrt::Shape{part} : shape}; }
};

struct Arrays {
  int replicas = 1;
  pjrt::ElementType master = pjrt::ElementType::float32;   ///< of parameters, optimizer state and gradients
  pjrt::ElementType compute = pjrt::ElementType::float32;  ///< of parameters in blocks
  pjrt::ElementType reduce = pjrt::ElementType::float32;   ///< of gradients while they are summed
  std::vector<ParameterArray> parameters;                  ///< by slot
  std::vector<GroupSettings> groups;
  int states = 0;  ///< arrays that the optimizer keeps for each trained parameter

  /// Slots of the parameters that are trained.
  std::vector<size_t> trained() const {
    std::vector<size_t> slots;
    for (const auto& parameter : parameters)
      if (parameter.trained) slots.push_back(parameter.slot);
    return slots;
  }
};

/// The arrays that the plan describes. `optimizer` gives the settings of each parameter.
Arrays arrays_of(const ModelSpec& model, const ParallelPlan& plan, const OptimizerConfig& optimizer);

/// The whole parameters, in the type of computation. `parts`: what this device has of each.
std::vector<pjrt::Value> gathered(pjrt::ModuleText& text, const Arrays& arrays,
                                  const std::vector<const ParameterArray*>& parameters,
                                  const std::vector<pjrt::Value>& parts);

/// The sum over the devices of gradients of whole parameters: what this device has of each, in the type of the masters.
std::vector<pjrt::Value> reduced(pjrt::ModuleText& text, const Arrays& arrays,
                                 const std::vector<const ParameterArray*>& parameters,
                                 const std::vector<pjrt::Value>& gradients);

}  // namespace runner::xla
