#include "strategies/dp/entry.hpp"

#include "strategies/contract/gradient_buckets.hpp"

namespace runner {

namespace {

Entry with_threads(std::string name, std::string summary, std::vector<Alias> aliases) {
  Entry entry;
  entry.name = std::move(name);
  entry.summary = std::move(summary);
  entry.aliases = std::move(aliases);
  entry.options = strategy_options({bucket_cap_option()});
  entry.foreign_names = {{.name = "dim",
                          .meaning = ForeignName::one_of({0}),
                          .note = "rows are the first dimension",
                          .refusal = "rows are divided, which are always the first dimension",
                          .sections = {"strategy"}}};
  entry.ranks_are_threads = true;
  entry.plan = bucketed_plan;
  return entry;
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
