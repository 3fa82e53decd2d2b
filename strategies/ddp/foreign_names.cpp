// Arguments of PyTorch's DistributedDataParallel and Join, and of Lightning's DDPStrategy.
#include "strategies/ddp/entry.hpp"

namespace runner {

std::vector<ForeignName> ddp_foreign_names() {
  constexpr const char* late =
      "nothing to do: a bucket is reduced when all of its gradients are there, also those of shared parameters";
  std::vector<ForeignName> names = {
      ForeignName::renamed("ddp_comm_state", "strategy.ddp_comm_hook_options"),
      ForeignName::accepted("broadcast_buffers",
                            "nothing to do: running statistics of BatchNorm follow the mean over all ranks after each "
                            "step, so they are equal on all ranks, also with false"),
      ForeignName::accepted("init_sync",
                            "nothing to do: initial values depend only on the seed and the parameter's name, so they "
                            "are equal on all ranks"),
      ForeignName::accepted("delay_all_reduce_named_params", late),
      ForeignName::accepted("param_to_hook_all_reduce", late),
      ForeignName::accepted("divide_by_initial_world_size",
                            "nothing to do: gradients are those of the mean over the global batch, also if some ranks "
                            "have fewer rows or none"),
      {.name = "throw_on_early_termination",
       .meaning = ForeignName::one_of({false}),
       .note = "ranks with fewer rows, or none, take part in each step",
       .refusal =
           "no rank ends early: a short last batch is divided among all ranks, and those without rows add zeros; "
           "data.drop_last = true leaves such batches out"},
  };
  for (auto& name : names) name.sections = {"", "train", "strategy"};
  return names;
}

}  // namespace runner
