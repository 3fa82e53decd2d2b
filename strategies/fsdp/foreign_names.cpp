// Arguments of PyTorch's and FairScale's FullyShardedDataParallel, and of Lightning's strategies for them.
#include <algorithm>

#include "strategies/fsdp/entry.hpp"

namespace runner {

namespace {

/// Lightning's device_mesh of FSDP.
std::optional<ForeignName::Values> mesh_of_pair(const nlohmann::json& value) {
  const auto is_size = [](const nlohmann::json& size) { return size.is_number_integer() && size > 0; };
  if (!value.is_array() || value.size() != 2 || !std::ranges::all_of(value, is_size)) return std::nullopt;
  return ForeignName::Values{{"devices.mesh", {{"replicate", value[0]}, {"shard", value[1]}}}};
}

/// false: parameters stay gathered between forward and backward.
std::optional<ForeignName::Values> sharding_of(const nlohmann::json& reshards) {
  if (!reshards.is_boolean()) return std::nullopt;
  return ForeignName::Values{{"strategy.sharding_strategy", reshards == true ? "FULL_SHARD" : "SHARD_GRAD_OP"}};
}

std::vector<ForeignName> fairscale_names() {
  constexpr const char* checkpoints =
      "nothing to do: checkpoints are written from host memory, and ranks need no copy of it all";
  std::vector<ForeignName> names = {
      {.name = "reshard_after_forward",
       .key = "strategy.sharding_strategy",
       .meaning = sharding_of,
       .refusal =
           "true is sharding_strategy = \"FULL_SHARD\", false is \"SHARD_GRAD_OP\"; for groups of ranks there is "
           "\"HYBRID_SHARD\" with `hybrid_group_size`"},
      ForeignName::accepted("disable_reshard_on_root",
                            "nothing to do: the last unit stays gathered, because its backward follows at once"),
      ForeignName::accepted("flatten_parameters",
                            "nothing to do: the parameters of a unit share one buffer, as with FairScale's default"),
      ForeignName::renamed("move_params_to_cpu", "strategy.cpu_offload"),
      {.name = "move_grads_to_cpu",
       .meaning = ForeignName::any_value(),
       .note = "gradients are where the optimizer state is, which `cpu_offload` decides"},
      {.name = "fp32_reduce_scatter",
       .key = "strategy.mixed_precision",
       .meaning = ForeignName::one_of({true}),
       .note = "gradients are reduced in the precision of the masters unless mixed_precision says otherwise",
       .refusal = "mixed_precision = { reduce_dtype = \"bf16\" } reduces gradients in 16 bits"},
      {.name = "compute_dtype",
       .key = "strategy.mixed_precision",
       .refusal = "it is param_dtype of mixed_precision = { param_dtype = \"bf16\" }, or follows from `precision`"},
      {.name = "buffer_dtype",
       .key = "strategy.mixed_precision",
       .refusal = "it is part of mixed_precision = { buffer_dtype = \"bf16\" }"},
      ForeignName::accepted("compute_device", "nothing to do: each rank computes on its device"),
      ForeignName::accepted("no_broadcast_optim_state", checkpoints),
      ForeignName::accepted("state_dict_device", checkpoints),
      ForeignName::accepted("state_dict_to_cpu", checkpoints),
      ForeignName::accepted("state_dict_on_rank_0_only", checkpoints),
      ForeignName::accepted("clear_autocast_cache", "nothing to do: casts are part of the plan"),
      ForeignName::accepted("force_input_to_fp32",
                            "nothing to do: `precision` decides in which dtype a block computes"),
      {.name = "process_group_reduce_scatter",
       .refusal =
           "collectives of a rank follow one another in the group of all ranks; reductions overlap with backward "
           "without a group of their own"},
      ForeignName::accepted("allow_reset_parameters", "nothing to do: each rank creates only its shards"),
  };
  for (auto& name : names) name.sections = {"strategy"};
  names.front().sections = {"", "train", "strategy"};
  return names;
}

}  // namespace

std::vector<ForeignName> fsdp_foreign_names() {
  constexpr const char* whole_model = "every parameter is sharded; model.frozen names those that are not trained";
  constexpr const char* one_group =
      "the group is made of all ranks; `hybrid_group_size` (fsdp) and `mics_shard_size` (zero) make groups";
  const std::vector<std::string> own = {"", "train", "strategy"};
  auto names = fairscale_names();
  for (const ForeignName& name : std::vector<ForeignName>{
           {.name = "process_group", .refusal = one_group},
           {.name = "device_mesh",
           .key = "devices.mesh",
           .meaning = mesh_of_pair,
           .refusal =
                "it is [replicas, ranks of a copy], and devices.mesh is a table such as { replicate = 2, shard = 4 }"},
           {.name = "ignored_modules", .refusal = whole_model, .sections = own},
           {.name = "ignored_states", .refusal = whole_model, .sections = own},
           {.name = "param_init_fn",
           .refusal = "each rank creates only its shards; model.init_std and model.init_from determine their values",
           .sections = own}})
    names.push_back(name);
  return names;
}

}  // namespace runner
