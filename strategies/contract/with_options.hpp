// Gives the functions of a strategy its options as a struct, so that each call parses them once.
#pragma once
#include "runner/base/option_table.hpp"
#include "strategies/contract/entry.hpp"

namespace runner {

/// `function`, which takes a job and the options of its strategy, as a function of the job.
template <typename Options, typename Function>
auto with_options(const OptionTable<Options>& (*table)(), Function function) {
  return [=](const Job& job) { return function(job, table().read(job.options)); };
}

}  // namespace runner
