// Which plans cannot run on which axes of a mesh, and with which optimizers.
#include <fmt/format.h>

#include "runner/base/text.hpp"
#include "strategies/catalog.hpp"
#include "strategies/program/program.hpp"

namespace runner {

namespace {

/// "powerSGD_hook", "bytegrad".
std::string reducer_of(const ParallelPlan& plan) {
  return plan.reducer.name.empty() ? "a comm hook or a strategy in Lua" : "`" + plan.reducer.name + "`";
}

/// Where the recipe names the optimizer: `optimizer.name = "muon"`, or the group with its patterns.
std::string setting_of(const Job& job, size_t optimizer) {
  const std::string name = job.optimizer_at(optimizer).spec->name;
  if (optimizer == 0) return fmt::format("optimizer.name = \"{}\"", name);
  std::vector<std::string> patterns;
  for (const auto& [pattern, number] : job.optimizer_patterns)
    if (number == optimizer) patterns.push_back(pattern);
  return fmt::format("optimizer.groups with name = \"{}\" for `{}`", name, join(patterns, ", "));
}

std::optional<std::string> refuse_tensor_axis(const Job& job, const ParallelPlan& plan) {
  if (job.mesh.size(Axis::tensor) == 1) return std::nullopt;
  if (plan.own_reducer)
    return reducer_of(plan) +
           " reduces gradients of complete parameters, so it cannot be combined with a tensor axis "
           "(tensor_parallel_size above 1): use ddp without ddp_comm_hook, fsdp or zero";
  const auto optimizer =
      job.optimizer_that([](const auto& spec) { return spec.reach != OptimizerSpec::Reach::element; });
  if (!optimizer) return std::nullopt;
  const bool in_blocks = job.optimizer_at(*optimizer).spec->reach == OptimizerSpec::Reach::block;
  return fmt::format(
      "{} needs {}, so it cannot be combined with a tensor axis (tensor_parallel_size above 1): take {}",
      setting_of(job, *optimizer), in_blocks ? "blocks of complete parameters" : "complete parameters",
      join_or(optimizer_names([](const auto& spec) { return spec.reach == OptimizerSpec::Reach::element; })));
}

std::optional<std::string> refuse_context_axis(const Job& job, const ParallelPlan& plan) {
  if (job.mesh.size(Axis::context) == 1 || !plan.own_reducer) return std::nullopt;
  return reducer_of(plan) +
         " reduces gradients of complete rows, so it cannot be combined with a context axis (context_parallel_size "
         "above 1): use ddp without ddp_comm_hook, fsdp or zero";
}

std::optional<std::string> refuse_pipeline_axis(const Job& job, const ParallelPlan& plan) {
  if (job.pipeline.ranks == 1) return std::nullopt;
  auto shape = job.pipeline;
  shape.micro_batches = static_cast<int>(job.accumulation);
  if (auto why = refuse_pipeline(shape)) return why;
  if (plan.own_reducer)
    return reducer_of(plan) +
           " reduces gradients of the complete model, so it cannot be combined with a pipeline (pipeline_parallel_size "
           "above 1): use ddp without ddp_comm_hook, fsdp or zero with stage = 1";
  if (plan.reduce_every_micro_batch)
    return "gradients cannot be reduced after each micro-batch in a pipeline (pipeline_parallel_size above 1), where "
           "several micro-batches are between forward and backward: use zero with stage = 1, or fsdp with "
           "reduce_every_micro_batch = false, its default here";
  if (job.hooks_in_backward)
    return "hooks with on_before_backward or on_after_backward cannot be combined with a pipeline "
           "(pipeline_parallel_size above 1): its ranks are at different micro-batches, but all ranks take part in "
           "each call of a hook: use on_before_optimizer_step";
  if (plan.updates_beside())
    return "an update in host memory that overlaps with the next forward cannot be combined with a pipeline "
           "(pipeline_parallel_size above 1): use it without offload";
  return std::nullopt;
}

/// A conversion gets complete parameters, and its graph is not a chain of casts (weight_gradients.hpp).
std::optional<std::string> refuse_conversion(const Job& job, const ParallelPlan&) {
  if (!job.model->converts()) return std::nullopt;
  if (job.mesh.size(Axis::tensor) > 1)
    return "plugins.precision converts complete parameters, so it cannot be combined with a tensor axis "
           "(tensor_parallel_size above 1): use fsdp or zero, a context axis, or a pipeline";
  if (job.pipeline.ranks > 1 && splits_backward(job.pipeline.schedule))
    return fmt::format(
        "plugins.precision converts parameters in the graph of a block, whose backward cannot be split as "
        "pipeline_schedule = \"{}\" does: use \"{}\"",
        name_of(job.pipeline.schedule), name_of(PipelineSchedule::one_f_one_b));
  return std::nullopt;
}

/// An update that overlaps with the next forward runs in another thread, which calls no collectives.
std::optional<std::string> refuse_matrices(const Job& job, const ParallelPlan& plan) {
  const auto optimizer = job.optimizer_that([](const auto& spec) { return spec.needs_matrix != nullptr; });
  if (!optimizer || plan.shards() == 1 || !plan.updates_beside()) return std::nullopt;
  return fmt::format(
      "{} needs sums over the ranks that share a parameter, which an update in host memory does not make: use it "
      "without offload, or take \"{}\"",
      setting_of(job, *optimizer),
      join(optimizer_names([](const auto& spec) { return !spec.needs_matrix; }), "\" or \""));
}

/// Refuses optimizers of groups if the plan has one rule for all elements of a buffer.
std::optional<std::string> refuse_group_optimizers(const Job& job, const ParallelPlan& plan) {
  const char* const form = plan.compiled                     ? "a compiled step updates"
                           : plan.swap_use().state           ? "an update of state on NVMe streams"
                           : plan.reducer.qadam_warmup       ? "algorithm = \"qadam\" reduces moments of"
                           : plan.reducer.name == "hivemind" ? "peers of hivemind exchange"
                                                             : nullptr;
  if (job.group_optimizers.empty() || !form) return std::nullopt;
  return fmt::format(
      "{} all parameters by one rule, so groups of optimizer.groups cannot have an optimizer or options of their own: "
      "remove `name` and the options, or use ddp, fsdp, or zero with state in memory",
      form);
}

/// Replicas exchange parameters. The average of an optimizer follows from states that they do not exchange.
std::optional<std::string> refuse_averages(const Job& job, const ParallelPlan& plan) {
  if (!job.optimizer->averages || !plan.reducer.replicas_differ || job.world_size() == 1) return std::nullopt;
  return fmt::format(
      "optimizer.name = \"{}\" evaluates an average that follows from its state, and with `{}` each rank has state of "
      "its own: take another optimizer",
      job.optimizer->name, plan.reducer.name.empty() ? "replicas_differ" : plan.reducer.name);
}

/// AdaScale compares the gradients of ranks that have complete gradients of their own rows.
std::optional<std::string> refuse_adascale(const Job& job, const ParallelPlan& plan) {
  if (!job.adascale) return std::nullopt;
  if (job.data_ranks() == 1)
    return "optimizer.adascale compares the gradients of several ranks, and this run has one data rank: remove it, or "
           "use more ranks";
  for (const Axis axis : {Axis::tensor, Axis::context, Axis::pipeline})
    if (job.mesh.size(axis) > 1)
      return fmt::format(
          "optimizer.adascale compares gradients of complete models and rows, so it cannot be combined with the axis "
          "`{}`: use the axes replicate and shard",
          name_of(axis));
  if (plan.own_reducer)
    return fmt::format(
        "optimizer.adascale needs gradients that are summed over ranks, and {} replaces that sum: use ddp without "
        "ddp_comm_hook, fsdp or zero",
        reducer_of(plan));
  return std::nullopt;
}

}  // namespace

std::optional<std::string> refuse_plan(const Job& job, const ParallelPlan& plan) {
  for (const auto& refuse : {refuse_tensor_axis, refuse_context_axis, refuse_pipeline_axis, refuse_averages,
                             refuse_group_optimizers, refuse_adascale, refuse_matrices, refuse_conversion})
    if (auto why = refuse(job, plan)) return why;
  return std::nullopt;
}

}  // namespace runner
