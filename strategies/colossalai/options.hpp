// The options of colossalai, under the names of Lightning's ColossalAIStrategy and of ColossalAI's GeminiDDP. Torch-free.
#pragma once
#include "runner/base/option_table.hpp"
#include "strategies/contract/loss_scaler.hpp"

namespace runner {

struct ColossalOptions {
  bool use_chunk = true;
  std::optional<int64_t> chunk_size = {};
  int64_t min_chunk_size = 32 << 20, chunk_search_range = 64 << 20,
          chunk_search_n_grids = 4096;  ///< elements, and a number
  std::string placement_policy = "auto";
  double shard_param_frac = 1, offload_optim_frac = 0, offload_param_frac = 0;
  double initial_scale = 65536, min_scale = 1, max_scale = 4294967296, growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 1000, hysteresis = 2;
};
const OptionTable<ColossalOptions>& colossal_options();
LossScalePolicy loss_scale_of(const ColossalOptions& options);

}  // namespace runner
