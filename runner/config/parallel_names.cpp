// The names of other tools for the axes of a mesh: Megatron, torchtitan, nanotron, picotron, DeepSpeed.
#include <fmt/format.h>

#include <iterator>
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
          by_hand("pipeline_parallel_split_points"),
          by_hand("pipeline_parallel_first_stage_less_layers"),
          by_hand("pipeline_parallel_last_stage_less_layers"),
          by_hand("decoder_first_pipeline_num_layers"),
          by_hand("decoder_last_pipeline_num_layers"),
          by_hand("num_layers_in_first_pipeline_stage"),
          by_hand("num_layers_in_last_pipeline_stage"),
          ForeignName::renamed("virtual_pipeline_model_parallel_size", "strategy.virtual_stages"),
          std::move(method)};
}

/// Names for the micro-batches of a pipeline, which are those of gradient accumulation here.
std::vector<ForeignName> micro_batch_names() {
  std::vector<ForeignName> names = {
      ForeignName::renamed("pipeline_parallel_microbatch_size", "train.micro_batch_size")};
  for (const char* name : {"num_pp_microbatches", "num_microbatches"})
    names.push_back(ForeignName::refused(name,
                                         "train.micro_batch_size is the number of sequences of a micro-batch, and "
                                         "train.accumulate_grad_batches the number of micro-batches of a step"));
  names.push_back(ForeignName::refused(
      "microbatch_group_size_per_vp_stage",
      "micro-batches go through each virtual stage in groups of at least as many as the pipeline has ranks"));
  return names;
}

/// Switches that have one setting here, or another place.
std::vector<ForeignName> fixed_names() {
  const auto always = [](const char* name, bool value, const std::string& why) {
    return ForeignName{.name = name, .meaning = ForeignName::one_of({value}), .note = why, .refusal = why};
  };
  const std::string loss = "ranks of a tensor axis always divide the vocabulary, also in the loss",
                    reduced = "gradients are reduced during backward in any case",
                    slices = "matrix products are not cut into slices that overlap with collectives of the tensor axis",
                    experts = "there are no models with experts, so there is no axis for them",
                    ends = "balanced stages count the embedding and the head by their FLOPs";
  std::vector<ForeignName> names = {
      always("enable_loss_parallel", true, loss),
      always("disable_loss_parallel", false, loss),
      always("overlap_grad_reduce", true, reduced),
      always("tp_comm_overlap", false, slices),
      always("enable_async_tensor_parallel", false, slices),
      always("account_for_embedding_in_pipeline_split", true, ends),
      always("account_for_loss_in_pipeline_split", true, ends),
      ForeignName::refused("use_distributed_optimizer",
                           "it is stage 1 of ZeRO, a strategy of its own (runner strategies)"),
      ForeignName::accepted("make_vocab_size_divisible_by",
                            "the vocabulary is not padded: ranks of a tensor axis can "
                            "have parts of different sizes"),
      ForeignName::refused("hierarchical_context_parallel_sizes",
                           "forms are " + join_or(context_form_names()) + ", each over all ranks of the axis")};
  for (const char* name :
       {"expert_parallel_degree", "expert_model_parallel_size", "expert_parallel_size", "ep", "ep_size"})
    names.push_back({.name = name, .meaning = ForeignName::one_of({1}), .note = experts, .refusal = experts});
  return names;
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
  for (const char* name : {"sequence_parallel_size", "ulysses_sequence_parallel_size"})
    names.push_back({.name = name,
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
                                "; the nearest to zero-bubble schedules is zb_h1, to LoopedBFS interleaved_1f1b"});
  for (auto list : {stage_names(), micro_batch_names(), fixed_names()})
    names.insert(names.end(), std::make_move_iterator(list.begin()), std::make_move_iterator(list.end()));
  for (const char* name : {"dp", "dp_size"}) names.push_back(ForeignName::renamed(name, "strategy.data_parallel_size"));
  names.push_back(ForeignName::renamed("enable_sequence_parallel", "strategy.sequence_parallel"));
  names.push_back({.name = "tp_mode",
                   .key = "strategy.sequence_parallel",
                   .meaning = rows_divided,
                   .refusal = "it is \"REDUCE_SCATTER\" or \"ALL_REDUCE\"; sequence_parallel is true or false"});
  for (const auto& [name, axis] :
       {std::pair("data_parallel_replicate_degree", "replicate"), std::pair("data_parallel_shard_degree", "shard")}) {
    names.push_back(ForeignName::refused(
        name,
        fmt::format("it is `{}` of devices.mesh = {{ replicate = 2, shard = 4 }}; leave both out for what the other "
                    "axes leave over (torchtitan's -1)",
                    axis)));
    names.back().key = "devices.mesh";
  }
  for (auto& name : names) name.sections = places;
  return names;
}

}  // namespace runner
