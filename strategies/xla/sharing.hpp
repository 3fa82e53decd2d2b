// How parameters come to a device and gradients leave it: gathers and reductions of the parameters of a unit, as one collective each.
#pragma once
#include <vector>

#include "strategies/xla/arrays.hpp"

namespace runner::xla {

/// The whole parameters, in the type of computation. `parts`: what this device has of each.
std::vector<pjrt::Value> gathered(pjrt::ModuleText& text, const Arrays& arrays,
                                  const std::vector<const ParameterArray*>& parameters,
                                  const std::vector<pjrt::Value>& parts);

/// The sum over the devices of gradients of whole parameters: what this device has of each, in the type of the masters.
std::vector<pjrt::Value> reduced(pjrt::ModuleText& text, const Arrays& arrays,
                                 const std::vector<const ParameterArray*>& parameters,
                                 const std::vector<pjrt::Value>& gradients);

}  // namespace runner::xla
