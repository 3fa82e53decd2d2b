// Post-local SGD: its options, and which ranks average when. This header is torch-free.
#pragma once
#include "runner/base/option_table.hpp"
#include "strategies/reducers/built_in.hpp"

namespace runner {

BuiltInReducer post_local_sgd();

/// PyTorch's PostLocalSGDState, and its model averagers.
struct LocalSgdOptions {
  int64_t start_localSGD_iter = 100;
  bool post_local_gradient_allreduce = true;
  std::optional<int64_t> subgroup_size = {};           ///< unset: the ranks of a node
  nlohmann::json period_group_size_dict = nullptr;     ///< {"2": 4, "8": 16}
  std::optional<int64_t> model_averaging_period = {};  ///< also an option of ddp
};
const OptionTable<LocalSgdOptions>& local_sgd_options();
/// After how many steps parameters are averaged, over groups of how many neighbouring ranks; ascending. The last group has all ranks.
struct Averaging {
  int64_t period = 1;
  int64_t group_size = 1;
};
std::vector<Averaging> averagings(const LocalSgdOptions& options, int world_size);
/// The ranks over which gradients are summed after start_localSGD_iter; 1: they are not.
int64_t gradient_group(const LocalSgdOptions& options, const Job& job);

}  // namespace runner
