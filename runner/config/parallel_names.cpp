// The names of other tools for the axes of a mesh: Megatron, torchtitan, nanotron, picotron, DeepSpeed.
#include "runner/base/text.hpp"
#include "runner/config/foreign_names.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// nanotron's tp_mode.
std::optional<ForeignName::Values> rows_divided(const json& value) {
  const auto mode = value.is_string() ? lower(value.get<std::string>()) : "";
  if (mode != "reduce_scatter" && mode != "all_reduce") return std::nullopt;
  return ForeignName::Values{{"strategy.sequence_parallel", mode == "reduce_scatter"}};
}

}  // namespace

std::vector<ForeignName> parallel_names() {
  const std::vector<std::string> places = {"", "train", "strategy", "devices"};
  std::vector<ForeignName> names;
  for (const char* name : {"tensor_model_parallel_size", "tensor_parallel_degree", "tp", "tp_size", "autotp_size"})
    names.push_back(ForeignName::renamed(name, "strategy.tensor_parallel_size"));
  for (const char* name : {"dp", "dp_size"}) names.push_back(ForeignName::renamed(name, "strategy.data_parallel_size"));
  names.push_back(ForeignName::renamed("enable_sequence_parallel", "strategy.sequence_parallel"));
  names.push_back({.name = "tp_mode",
                   .key = "strategy.sequence_parallel",
                   .meaning = rows_divided,
                   .refusal = "it is \"REDUCE_SCATTER\" or \"ALL_REDUCE\"; sequence_parallel is true or false"});
  for (auto& name : names) name.sections = places;
  for (const char* name : {"data_parallel_replicate_degree", "data_parallel_shard_degree", "context_parallel_size",
                           "context_parallel_degree", "cp", "cp_size", "pipeline_parallel_size",
                           "pipeline_model_parallel_size", "pipeline_parallel_degree", "pp", "pp_size"})
    names.push_back({.name = name, .key = "devices.mesh", .only_suggested = true});
  return names;
}

}  // namespace runner
