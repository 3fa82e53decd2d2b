// `dp` and `ddp2`: data parallelism with one process for each node, whose threads drive a device each.
//
// Source: torch.nn.DataParallel; Lightning 1.9's DataParallelStrategy and Lightning 1.6's DDP2Strategy. There one
// device scatters the batch, copies the model to the others before each step, and gathers outputs and gradients. Here
// each thread has a replica and its rows, and the threads sum gradients, so the first device has no more to do than the
// others.
#include "strategies/contract/gradient_buckets.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

namespace {

Entry with_threads(std::string name, std::string summary, std::vector<Alias> aliases) {
  return {.name = std::move(name),
          .summary = std::move(summary),
          .aliases = std::move(aliases),
          .options = strategy_options({bucket_cap_option()}),
          .ranks_are_threads = true,
          .plan = bucketed_plan};
}

}  // namespace

Entry dp_entry() {
  Entry entry = with_threads("dp", "One process drives the devices of a node, with a thread and a replica for each.",
                             {{"data_parallel"}, {"DataParallelStrategy"}, {"DataParallel"}});
  entry.refuse = [](const Job& job) -> std::optional<std::string> {
    if (job.num_nodes == 1) return std::nullopt;
    return "dp drives the devices of one node; ddp2 has a process on each node, and ddp one for each device";
  };
  return entry;
}

Entry ddp2_entry() {
  return with_threads("ddp2",
                      "One process on each node drives its devices, as dp; gradients are summed over all nodes.",
                      {{"DDP2Strategy"}});
}

}  // namespace runner
