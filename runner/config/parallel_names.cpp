// The names of other tools for the axes of a mesh: Megatron, torchtitan, nanotron, picotron, DeepSpeed.
#include <map>

#include "runner/base/text.hpp"
#include "runner/config/foreign_names.hpp"
#include "strategies/mesh/context_form.hpp"
#include "strategies/pipeline/schedule.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// nanotron's tp_mode.
std::optional<ForeignName::Values> rows_divided(const json& value) {
  const auto mode = value.is_string() ? lower(value.get<std::string>()) : "";
  if (mode != "reduce_scatter" && mode != "all_reduce") return std::nullopt;
  return ForeignName::Values{{"strategy.sequence_parallel", mode == "reduce_scatter"}};
}

/// torchtitan's schedules and nanotron's engines, and the names that ours have.
std::optional<ForeignName::Values> schedule_meant(const json& value) {
  static const std::map<std::string, PipelineSchedule> schedules = {
      {"1f1b", PipelineSchedule::one_f_one_b},
      {"gpipe", PipelineSchedule::gpipe},
      {"afab", PipelineSchedule::gpipe},
      {"interleaved1f1b", PipelineSchedule::interleaved_1f1b},
      {"interleaved_1f1b", PipelineSchedule::interleaved_1f1b},
      {"zb_h1", PipelineSchedule::zb_h1}};
  const auto found = schedules.find(value.is_string() ? lower(value.get<std::string>()) : "");
  if (found == schedules.end()) return std::nullopt;
  return ForeignName::Values{{"strategy.pipeline_schedule", name_of(found->second)}};
}

/// Megatron's cp_comm_type.
std::optional<ForeignName::Values> form_meant(const json& value) {
  static const std::map<std::string, ContextForm> forms = {
      {"p2p", ContextForm::ring}, {"all_gather", ContextForm::gather}, {"a2a", ContextForm::ulysses}};
  const auto found = forms.find(value.is_string() ? lower(value.get<std::string>()) : "");
  if (found == forms.end()) return std::nullopt;
  return ForeignName::Values{{"strategy.context_parallel", name_of(found->second)}};
}

/// DeepSpeed's sequence_parallel_size.
std::optional<ForeignName::Values> ulysses_ranks(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  return ForeignName::Values{{"strategy.context_parallel_size", value},
                             {"strategy.context_parallel", name_of(ContextForm::ulysses)}};
}

/// Names for the division of the blocks into stages.
std::vector<ForeignName> stage_names() {
  const auto needs_sizes = [](const char* name) {
    return ForeignName{.name = name,
                       .key = "strategy.virtual_stages",
                       .refusal =
                           "the number of stages depends on the model: virtual_stages = layers / (ranks of the "
                           "pipeline x layers of a stage)"};
  };
  const auto by_hand = [](const char* name) {
    return ForeignName{.name = name,
                       .key = "strategy.stages",
                       .refusal = "strategy.stages has the numbers of blocks of the stages, or their first blocks"};
  };
  ForeignName method{.name = "partition_method",
                     .key = "strategy.stages",
                     .meaning = ForeignName::one_of({"parameters", "uniform", "best"}),
                     .note = "stages are balanced by predicted times, if they fit the memory (strategy.stages)",
                     .refusal = "strategy.stages has the numbers of blocks of the stages, or their first blocks"};
  return {ForeignName::renamed("num_virtual_stages_per_pipeline_rank", "strategy.virtual_stages"),
          needs_sizes("num_layers_per_virtual_pipeline_stage"),
          needs_sizes("pipeline_parallel_layers_per_stage"),
          by_hand("pipeline_model_parallel_layout"),
          by_hand("module_fqns_per_model_part"),
          std::move(method)};
}

}  // namespace

std::vector<ForeignName> parallel_names() {
  const std::vector<std::string> places = {"", "train", "strategy", "devices"};
  std::vector<ForeignName> names;
  for (const char* name : {"tensor_model_parallel_size", "tensor_parallel_degree", "tp", "tp_size", "autotp_size"})
    names.push_back(ForeignName::renamed(name, "strategy.tensor_parallel_size"));
  for (const char* name : {"pipeline_model_parallel_size", "pipeline_parallel_degree", "pp", "pp_size", "num_stages"})
    names.push_back(ForeignName::renamed(name, "strategy.pipeline_parallel_size"));
  for (const char* name : {"context_parallel_degree", "cp", "cp_size"})
    names.push_back(ForeignName::renamed(name, "strategy.context_parallel_size"));
  names.push_back({.name = "sequence_parallel_size",
                   .key = "strategy.context_parallel_size",
                   .meaning = ulysses_ranks,
                   .note = "DeepSpeed's sequence parallelism is Ulysses",
                   .refusal = "it is the number of ranks of Ulysses: context_parallel_size with context_parallel = "
                              "\"ulysses\""});
  names.push_back({.name = "cp_comm_type",
                   .key = "strategy.context_parallel",
                   .meaning = form_meant,
                   .refusal = "forms are " + join_or(context_form_names())});
  names.push_back({.name = "context_parallel_load_balancer",
                   .key = "strategy.context_parallel",
                   .meaning = ForeignName::one_of({"headtail"}),
                   .note = "each rank has the chunks r and 2 x ranks - 1 - r of a row in any case",
                   .refusal = "each rank has the chunks r and 2 x ranks - 1 - r of a row (\"headtail\")"});
  for (const char* name : {"pipeline_parallel_schedule", "pp_engine"})
    names.push_back({.name = name,
                     .key = "strategy.pipeline_schedule",
                     .meaning = schedule_meant,
                     .refusal = "schedules are " + join_or(pipeline_schedule_names()) +
                                "; the nearest to torchtitan's zero-bubble schedules is zb_h1"});
  for (auto& name : stage_names()) names.push_back(std::move(name));
  for (const char* name : {"dp", "dp_size"}) names.push_back(ForeignName::renamed(name, "strategy.data_parallel_size"));
  names.push_back(ForeignName::renamed("enable_sequence_parallel", "strategy.sequence_parallel"));
  names.push_back({.name = "tp_mode",
                   .key = "strategy.sequence_parallel",
                   .meaning = rows_divided,
                   .refusal = "it is \"REDUCE_SCATTER\" or \"ALL_REDUCE\"; sequence_parallel is true or false"});
  for (auto& name : names) name.sections = places;
  for (const char* name : {"data_parallel_replicate_degree", "data_parallel_shard_degree"})
    names.push_back({.name = name, .key = "devices.mesh", .only_suggested = true});
  return names;
}

}  // namespace runner
