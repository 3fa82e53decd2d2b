// `bagua`: data parallelism with Bagua's algorithms. Ranks train replicas, and exchange gradients or parameters.
//
// Source: Gan et al., BAGUA (VLDB 2021), and BaguaSys/bagua 3e480d29.
#include <fmt/format.h>

#include "strategies/contract/gradient_buckets.hpp"
#include "strategies/contract/with_options.hpp"
#include "strategies/program/parallel_plan.hpp"
#include "strategies/reducers/bagua_plan.hpp"

namespace runner {

namespace {

const BuiltInReducer* reducer_of(const BaguaOptions& options) { return find_reducer(options.algorithm); }

ParallelPlan bagua_plan(const Job& job, const BaguaOptions& options) {
  ParallelPlan plan = bucketed_plan(job);
  if (const auto* reducer = reducer_of(options))
    use_reducer(plan, *reducer, job.options, plan.gradient);
  else if (!options.average)
    plan.gradient_factor = job.data_ranks();
  return plan;
}

std::optional<std::string> refuse_bagua(const Job& job, const BaguaOptions& options) {
  const auto* reducer = reducer_of(options);
  return reducer && reducer->refuse ? reducer->refuse(job, job.options) : std::nullopt;
}

std::vector<std::string> notes_of_bagua(const Job& job, const BaguaOptions& options) {
  std::vector<std::string> notes;
  if (options.algorithm == "gradient_allreduce" && is_hierarchical(options))
    notes.push_back("`hierarchical`: nothing to do: the backend chooses the algorithm of an all-reduce");
  if (options.algorithm == "qadam")
    notes.push_back(
        fmt::format("qadam: from step {} on, train.gradient_clip_val and the logged norm apply to the first moment, "
                    "and weight_decay has no effect",
                    warmup_steps(options) + 1));
  const bool one_node = job.world_size() > 1 && is_hierarchical(options) && groups_of(options, job).nodes == 1;
  if (one_node && is_decentralized(options))
    notes.push_back(
        "hierarchical = true averages all ranks of a node in each exchange, and there is one node; with "
        "hierarchical = false, ranks exchange with each other");
  if (one_node && (options.algorithm == "bytegrad" || options.algorithm == "qadam"))
    notes.push_back(
        "hierarchical = true and one node: gradients are rounded to 8 bits, but ranks send 32 bits; hierarchical = "
        "false sends 8 bits");
  if (exchanges_parameters(options) && job.world_size() > 1)
    notes.push_back(
        fmt::format("{}: each rank trains a replica; a checkpoint has all of them, and that of rank 0 is the model",
                    options.algorithm));
  return notes;
}

std::vector<StrategyOption> bagua_strategy_options() {
  auto options = strategy_options(bagua_options().options());
  options.push_back({bucket_cap_option()});
  const auto only = [&](const std::string& name, const std::string& what, bool (*holds)(const BaguaOptions&)) {
    need(options, {name},
         {what, with_options(bagua_options, [holds](const Job&, const BaguaOptions& given) { return holds(given); })});
  };
  only("communication_interval", "a decentralized algorithm", is_decentralized);
  only("peer_selection_mode", "algorithm = \"decentralized\"",
       [](const BaguaOptions& given) { return given.algorithm == "decentralized"; });
  only("average", "an algorithm that sends gradients",
       [](const BaguaOptions& given) { return !exchanges_parameters(given); });
  only("hierarchical", "an algorithm that exchanges between nodes",
       [](const BaguaOptions& given) { return given.algorithm != "async"; });
  only("warmup_steps", "algorithm = \"qadam\" or \"async\"",
       [](const BaguaOptions& given) { return given.algorithm == "qadam" || given.algorithm == "async"; });
  only("sync_interval_ms", "algorithm = \"async\"",
       [](const BaguaOptions& given) { return given.algorithm == "async"; });
  return options;
}

}  // namespace

Entry bagua_entry() {
  return {.name = "bagua",
          .summary = "Bagua's algorithms: gradients in 8 bits, or replicas that are averaged with other ranks.",
          .aliases = {{"BaguaStrategy"}},
          .options = bagua_strategy_options(),
          .refuse = with_options(bagua_options, refuse_bagua),
          .notes = with_options(bagua_options, notes_of_bagua),
          .label = with_options(bagua_options,
                                [](const Job&, const BaguaOptions& options) { return "bagua " + options.algorithm; }),
          .plan = with_options(bagua_options, bagua_plan)};
}

}  // namespace runner
