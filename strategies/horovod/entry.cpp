#include "strategies/horovod/entry.hpp"

#include <fmt/format.h>

#include "strategies/contract/gradient_buckets.hpp"
#include "strategies/contract/with_options.hpp"
#include "strategies/horovod/variables.hpp"
#include "strategies/reducers/adasum_plan.hpp"
#include "strategies/reducers/hierarchical_sum_plan.hpp"

namespace runner {

namespace {

/// Whether gradients are summed inside each node first. One node, or one rank in each, has the sum of `ddp`.
bool sums_in_nodes(const Job& job, const HorovodOptions& options) {
  const auto groups = node_groups(job, options.hierarchical);
  return options.op != "adasum" && groups.node > 1 && groups.nodes > 1;
}

ParallelPlan horovod_plan(const Job& job, const HorovodOptions& options) {
  ParallelPlan plan = bucketed_plan(job);
  const DType wire = options.compression == "fp16" ? DType::float16 : plan.reduce;
  if (options.op == "adasum") {
    use_reducer(plan, adasum(), job.options, wire);
    return plan;
  }
  if (options.op == "sum") plan.gradient_factor = job.data_ranks();
  if (sums_in_nodes(job, options)) {
    use_reducer(plan, hierarchical_sum(),
                hierarchical_sum_options().print({.predivide = options.gradient_predivide_factor}), wire);
    return plan;
  }
  plan.predivide = options.gradient_predivide_factor;
  if (job.sharing_ranks() > 1) plan.reduce = wire;  // one rank sends nothing
  return plan;
}

std::optional<std::string> refuse_horovod(const Job& job, const HorovodOptions& options) {
  if (options.gradient_predivide_factor != 1 && options.op != "average")
    return fmt::format("`gradient_predivide_factor` is for op = \"average\", in Horovod too; op is \"{}\"", options.op);
  if (sums_in_nodes(job, options) && job.data_ranks() != job.world_size())
    return "`hierarchical` sums the gradients of complete models and rows, so it cannot be combined with the axes "
           "tensor, context and pipeline: remove it";
  return options.op == "adasum" ? adasum().refuse(job, job.options) : std::nullopt;
}

/// Lightning multiplies by the number of ranks. The examples of Horovod do not with Adasum, except by the ranks of a node that sum.
double rate_factor(const Job& job, const HorovodOptions& options) {
  if (!options.scale_learning_rate || options.op == "sum") return 1;
  if (options.op == "adasum") return static_cast<double>(adasum_groups(options, job).node);
  return job.data_ranks();
}

std::vector<std::string> notes_of_horovod(const Job& job, const HorovodOptions& options) {
  std::vector<std::string> notes = notes_of_horovod_variables();
  if (const double factor = rate_factor(job, options); factor != 1)
    notes.push_back(
        fmt::format("learning rates are multiplied by {}, {}; if those of the recipe are multiplied already, set "
                    "scale_learning_rate = false",
                    factor,
                    options.op == "adasum" ? "the ranks of a node, as in Horovod's examples"
                                           : "the number of ranks, as Lightning does with Horovod"));
  if (options.op != "adasum" || job.world_size() == 1) return notes;
  notes.push_back(
      "op = \"adasum\": parameters are equal on all ranks, but each rank has optimizer state of its own; a checkpoint "
      "has that of all ranks, and resumes with the same number of ranks only");
  if (options.hierarchical && adasum_groups(options, job).nodes == 1)
    notes.push_back("op = \"adasum\", hierarchical = true and one node: updates are averaged, not combined");
  return notes;
}

std::vector<ForeignName> horovod_foreign_names() {
  constexpr const char* grouped = "nothing to do: gradients are reduced in buckets of `bucket_cap_mb`";
  std::vector<ForeignName> names = {
      {.name = "backward_passes_per_step",
       .key = "train.accumulate_grad_batches",
       .meaning = ForeignName::same_value_of("train.accumulate_grad_batches"),
       .note = "Horovod adds the gradients of the passes; here the loss is the mean over all of them"},
      ForeignName::renamed("fusion_threshold_mb", "strategy.bucket_cap_mb"),
      ForeignName::accepted("num_groups", grouped),
      ForeignName::accepted("strategy.groups", grouped),
      ForeignName::accepted("named_parameters", "nothing to do: parameters always have names here"),
      ForeignName::accepted("sparse_as_dense", "nothing to do: gradients of embeddings are reduced as dense ones"),
      ForeignName::refused("process_set", process_sets_here),
      ForeignName::refused("process_sets", process_sets_here),
  };
  for (auto& name : names) name.sections = {"", "train", "strategy"};
  return names;
}

std::vector<StrategyOption> horovod_strategy_options() {
  auto options = strategy_options(horovod_options().options());
  options.push_back({bucket_cap_option()});
  const auto acts = [](const Job& job, const HorovodOptions& given) {
    return given.op == "adasum" || sums_in_nodes(job, given);
  };
  need(options, {"hierarchical"},
       {"several nodes with several ranks each, or op = \"adasum\"", with_options(horovod_options, acts)});
  return options;
}

std::string label_of_horovod(const Job&, const HorovodOptions& options) {
  return options.op == "average" ? "horovod" : "horovod " + options.op;
}

}  // namespace

Entry horovod_entry() {
  Entry entry;
  entry.name = "horovod";
  entry.summary = "Horovod's data parallelism: gradients are averaged or summed, or updates are combined by Adasum.";
  entry.aliases = {{"HorovodStrategy"}};
  entry.options = horovod_strategy_options();
  entry.foreign_names = horovod_foreign_names();
  entry.refuse = with_options(horovod_options, refuse_horovod);
  entry.notes = with_options(horovod_options, notes_of_horovod);
  entry.label = with_options(horovod_options, label_of_horovod);
  entry.rate_factor = with_options(horovod_options, rate_factor);
  entry.plan = with_options(horovod_options, horovod_plan);
  return entry;
}

}  // namespace runner
