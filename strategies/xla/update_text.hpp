// The update of an optimizer in StableHLO: elementwise, with the numbers that change from step to step as arguments.
#pragma once
#include <vector>

#include "strategies/contract/optimizer.hpp"
#include "strategies/pjrt/module_text.hpp"

namespace runner::xla {

/// Names of the optimizers whose update can be compiled.
const std::vector<std::string>& compiled_optimizers();

/// What update number `step`, from 1, needs of the parameters with these settings. `lr_factor` multiplies their rate.
std::vector<double> update_numbers(const OptimizerConfig& config, const GroupSettings& group, double lr_factor,
                                   int64_t step);
/// Their number.
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
