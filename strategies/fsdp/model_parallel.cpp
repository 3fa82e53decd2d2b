// `model_parallel`: Lightning's ModelParallelStrategy. The devices of a node are the tensor axis of the mesh, unless the recipe gives other
// sizes, and the data axis is sharded as by fsdp with FULL_SHARD.
#include "strategies/contract/with_options.hpp"
#include "strategies/fsdp/entry.hpp"

namespace runner {

namespace {

struct ModelParallelOptions {
  bool save_distributed_checkpoint = true;
};

const OptionTable<ModelParallelOptions>& model_parallel_options() {
  static const auto table = OptionTable<ModelParallelOptions>().add(
      {.name = "save_distributed_checkpoint",
       .help = "true: each rank writes what it has to checkpoints; false: rank 0 writes everything. Both can be loaded "
               "with any strategy and number of ranks."},
      &ModelParallelOptions::save_distributed_checkpoint);
  return table;
}

ParallelPlan model_parallel_plan(const Job& job, const ModelParallelOptions& options) {
  Job sharded = job;
  sharded.options = {{"sharding_strategy", "FULL_SHARD"},
                     {"state_dict_type", options.save_distributed_checkpoint ? "sharded" : "full"}};
  return fsdp_plan(sharded);
}

}  // namespace

Entry model_parallel_entry() {
  Entry entry;
  entry.name = "model_parallel";
  entry.summary =
      "The ranks of a node divide the matrices of the model (tensor parallelism), and the nodes divide the data as "
      "fsdp does.";
  entry.aliases = {{"ModelParallelStrategy"}, {"tensor_parallel"}, {"tp"}};
  entry.options = strategy_options(model_parallel_options().options());
  entry.own_axis = Axis::tensor;
  entry.plan = with_options(model_parallel_options, model_parallel_plan);
  return entry;
}

}  // namespace runner
