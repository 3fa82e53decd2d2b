// The memory and the traffic of a sum of gradients in two levels. This header is torch-free.
#pragma once
#include "runner/base/option_table.hpp"
#include "strategies/reducers/built_in.hpp"
#include "strategies/reducers/node_groups.hpp"

namespace runner {

/// Sums gradients inside each node, and then over the nodes. It needs several nodes with several ranks each.
BuiltInReducer hierarchical_sum();

struct HierarchicalSumOptions {
  double predivide = 1;  ///< gradients are divided by it before the sum and multiplied after
};
const OptionTable<HierarchicalSumOptions>& hierarchical_sum_options();

/// Length of a bucket after padding with zeros, so that the ranks of a node have equal parts.
int64_t hierarchical_sum_elements(int64_t elements, const NodeGroups& groups);

}  // namespace runner
