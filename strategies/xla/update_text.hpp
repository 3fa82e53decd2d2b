// The update of an optimizer in StableHLO: elementwise, with the numbers that change from step to step as arguments.
#pragma once
#include <vector>

#include "strategies/contract/optimizer.hpp"
#include "strategies/pjrt/module_text.hpp"

namespace runner::xla {

/// The numbers of update `step` (from 1) for parameters with these settings, in the order of write_update(). `lr_factor` multiplies their
/// rate.
std::vector<double> update_numbers(const OptimizerConfig& config, const GroupSettings& group, double lr_factor,
                                   int64_t step);
/// The length of update_numbers().
size_t update_number_count(const OptimizerConfig& config);

struct UpdatedArrays {
  pjrt::Value parameter;
  std::vector<pjrt::Value> states;
};

/// `gradient` is clipped. `numbers`: update_numbers() as scalars of the type in which the update is computed. Half-precision masters are
/// widened for it.
UpdatedArrays write_update(pjrt::ModuleText& text, const OptimizerConfig& config, const UpdatedArrays& old,
                           const pjrt::Value& gradient, const std::vector<pjrt::Value>& numbers);

}  // namespace runner::xla
