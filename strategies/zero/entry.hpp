// `zero`: DeepSpeed's ZeRO stages 1, 2 and 3 under the names of its configuration files.
//
// Stages 1 and 2 keep every parameter on every rank in the dtype of use; masters, optimizer state and (stage 2)
// gradients are sharded by buckets. On the wire: one reduce-scatter and one all-gather, 2 x parameters; stage 2 reduces
// after every micro-batch. Stage 3 shards the parameters too and gathers them block by block: 3 x parameters, less what
// persists or is reused soon. With offload the optimizer, and in stage 3 the shards, are in host memory or on NVMe.
// Source: Rajbhandari et al., ZeRO (SC 2020) and ZeRO-Infinity (SC 2021); Ren et al., ZeRO-Offload (ATC 2021).
#pragma once
#include "strategies/contract/loss_scaler.hpp"
#include "strategies/sharded/plan.hpp"

namespace runner {

Entry zero_entry();

/// The options as the strategy and its claims both read them.
ShardPlan zero_plan(const Job& job);
/// DeepSpeed's law for 16-mixed.
LossScalePolicy zero_loss_scale(const Job& job);

}  // namespace runner
