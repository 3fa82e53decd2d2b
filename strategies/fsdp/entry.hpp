// `fsdp`: parameters, gradients and optimizer state sharded over ranks, gathered unit by unit.
#pragma once
#include "strategies/contract/entry.hpp"
#include "strategies/contract/flat_layout.hpp"

namespace runner {

Entry fsdp_entry();

/// The options as the strategy and its claims both read them.
struct FsdpPlan {
  std::string sharding_strategy;  ///< FULL_SHARD | SHARD_GRAD_OP | NO_SHARD | HYBRID_SHARD
  int shards = 1;                 ///< ranks that share one copy
  int replicas = 1;               ///< copies
  bool reshard_after_forward = true;
  DType parameter = DType::float32;  ///< dtype of gathered parameters
  DType reduce = DType::float32;     ///< dtype gradients are reduced in
  bool reduce_every_micro_batch = false;
  std::vector<Unit> units;

  bool own_copy(const Job& job) const;  ///< blocks see gathered copies, not the shards themselves
};
FsdpPlan fsdp_plan(const Job& job);

/// Plays fsdp's step (memory.cpp).
MemoryParts fsdp_memory(const Job& job);

}  // namespace runner
