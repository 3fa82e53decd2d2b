// Bagua's algorithms: their options, messages and groups of ranks. This header is torch-free.
#pragma once
#include "runner/base/option_table.hpp"
#include "runner/base/round_up.hpp"
#include "strategies/reducers/built_in.hpp"
#include "strategies/reducers/node_groups.hpp"

namespace runner {

struct BaguaOptions {
  std::string algorithm = "gradient_allreduce";
  std::optional<bool> hierarchical = {};  ///< unset: false for gradient_allreduce, otherwise true
  bool average = true;
  std::string peer_selection_mode = "all";
  int64_t communication_interval = 1;
  std::optional<int64_t> warmup_steps = {};  ///< unset: 100 for qadam, 0 for async
  int64_t sync_interval_ms = 500;
};
const OptionTable<BaguaOptions>& bagua_options();
/// Steps that sum gradients, of qadam and async.
inline int64_t warmup_steps(const BaguaOptions& options) {
  return options.warmup_steps.value_or(options.algorithm == "qadam" ? 100 : 0);
}
/// Whether ranks average parameters in each exchange of groups_of().
inline bool is_decentralized(const BaguaOptions& options) { return options.algorithm.ends_with("decentralized"); }
/// Whether ranks train replicas, and exchange parameters instead of gradients.
inline bool exchanges_parameters(const BaguaOptions& options) {
  return is_decentralized(options) || options.algorithm == "async";
}

BuiltInReducer bytegrad();
BuiltInReducer qadam();
BuiltInReducer decentralized();
BuiltInReducer low_precision_decentralized();
BuiltInReducer async_average();

bool is_hierarchical(const BaguaOptions& options);
inline NodeGroups groups_of(const BaguaOptions& options, const Job& job) {
  return node_groups(job, is_hierarchical(options));
}

/// MinMaxUInt8: a message has the least and the largest value, and a byte for each element; both parts are padded to 32 bytes.
inline constexpr int64_t min_max_alignment = 32;
inline int64_t min_max_bytes(int64_t elements) { return min_max_alignment + round_up(elements, min_max_alignment); }
/// Elements of each of `parts` chunks of a bucket, which is padded with zeros.
inline int64_t chunk_of(int64_t elements, int64_t parts) { return (elements + parts - 1) / parts; }

}  // namespace runner
