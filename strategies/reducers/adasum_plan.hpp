// The memory and the traffic of Horovod's Adasum. This header is torch-free.
#pragma once
#include "runner/base/option_table.hpp"
#include "strategies/reducers/built_in.hpp"
#include "strategies/reducers/node_groups.hpp"

namespace runner {

// The options of horovod. This header is torch-free.

struct HorovodOptions {
  std::string op = "average", compression = "none";
  double gradient_predivide_factor = 1;
  bool hierarchical = false;
  bool scale_learning_rate = true;
};
const OptionTable<HorovodOptions>& horovod_options();

/// The reducer of op = "adasum".
BuiltInReducer adasum();

/// The vectors that are combined; their number is a power of two.
NodeGroups adasum_groups(const HorovodOptions& options, const Job& job);
/// Length of a bucket after padding with zeros, so that the ranks of a node have equal parts, which can be halved at every level.
int64_t adasum_elements(int64_t elements, const NodeGroups& groups);
/// Elements that are converted to float64 together.
inline constexpr int64_t adasum_piece = 1 << 14;

}  // namespace runner
