// Arguments of PyTorch's DistributedDataParallel and Join, of Lightning's DDPStrategy, of Horovod and of Bagua.
#include "runner/base/text.hpp"
#include "strategies/ddp/entry.hpp"

namespace runner {

namespace {

/// Horovod's compression ("fp16", "Compression.fp16") as one of PyTorch's comm hooks.
std::optional<ForeignName::Values> compression(const nlohmann::json& value) {
  if (!value.is_string()) return std::nullopt;
  auto name = value.get<std::string>();
  name = lower(name.substr(name.rfind('.') + 1));
  if (name == "none") return ForeignName::Values{};
  return name == "fp16" ? std::optional(ForeignName::Values{{"strategy.ddp_comm_hook", "fp16_compress"}})
                        : std::nullopt;
}

}  // namespace

std::vector<ForeignName> ddp_foreign_names() {
  constexpr const char* grouped = "nothing to do: gradients are reduced in buckets of `bucket_cap_mb` (ddp)";
  constexpr const char* late =
      "nothing to do: a bucket is reduced when all of its gradients are there, also those of shared parameters";
  std::vector<ForeignName> names = {
      ForeignName::renamed("ddp_comm_state", "strategy.ddp_comm_hook_options"),
      ForeignName::accepted("broadcast_buffers", "nothing to do: no model here has buffers that training changes"),
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
      {.name = "op",
       .meaning = ForeignName::one_of({"average", "sum"}),
       .note = "gradients are those of the mean over all tokens of the global batch",
       .refusal = "gradients are summed over ranks, and the loss is the mean over all tokens of the global batch; "
                  "there is no Adasum"},
      {.name = "compression",
       .key = "strategy.ddp_comm_hook",
       .meaning = compression,
       .refusal = "it is \"none\" or \"fp16\""},
      {.name = "backward_passes_per_step",
       .key = "train.accumulate_grad_batches",
       .meaning = ForeignName::same_value_of("train.accumulate_grad_batches"),
       .note = "Horovod adds the gradients of the passes; here the loss is the mean over all of them"},
      {.name = "algorithm",
       .meaning = ForeignName::one_of({"gradient_allreduce"}),
       .note = "gradients are summed by all-reduce, as in every data-parallel strategy",
       .refusal = "of Bagua's algorithms, only \"gradient_allreduce\" is supported; lua:topk compresses gradients, "
                  "lua:gossip averages parameters with neighbours, lua:local_sgd every few steps"},
      ForeignName::accepted("hierarchical", "nothing to do: the backend chooses the algorithm of an all-reduce"),
      ForeignName::accepted("flatten", "nothing to do: a bucket is one contiguous tensor"),
      ForeignName::accepted("num_groups", grouped),
      ForeignName::accepted("strategy.groups", grouped),
      ForeignName::accepted("named_parameters", "nothing to do: parameters always have names here"),
  };
  for (auto& name : names) name.sections = {"", "train", "strategy"};
  return names;
}

}  // namespace runner
