#include "strategies/reducers/hierarchical_sum_plan.hpp"

#include "runner/base/round_up.hpp"

namespace runner {

namespace {

/// Padded buckets inside the node, to its ranks and back, and a part of them over the nodes.
std::vector<Traffic> traffic_of_sum(const Job& job, const ParallelPlan& plan) {
  const auto groups = node_groups(job, true);
  const auto buckets = buckets_of(job, plan);
  int64_t bytes = 0;
  for (const auto& bucket : buckets)
    bytes += hierarchical_sum_elements(bucket.total, groups) * bytes_of(plan.reducer.wire);
  const int64_t calls = std::ssize(buckets);
  const int node = static_cast<int>(groups.node), nodes = static_cast<int>(groups.nodes);
  return {make_traffic(Collective::reduce_scatter, node, calls, bytes),
          make_traffic(Collective::all_reduce, nodes, calls, bytes / node, node),
          make_traffic(Collective::all_gather, node, calls, bytes)};
}

/// The rank's part, and a copy of the bucket if the bucket itself cannot be sent.
ReducerPlan::Bytes bytes_of_sum(const Job& job, const ParallelPlan& plan, const FlatLayout& bucket) {
  const auto groups = node_groups(job, true);
  const int64_t padded = hierarchical_sum_elements(bucket.total, groups), wire = bytes_of(plan.reducer.wire);
  const bool copies = padded != bucket.total || plan.reducer.wire != plan.gradient;
  return {.held = padded / groups.node * wire + (copies ? padded * wire : 0)};
}

}  // namespace

const OptionTable<HierarchicalSumOptions>& hierarchical_sum_options() {
  static const auto table = OptionTable<HierarchicalSumOptions>().add(
      {.name = "predivide", .help = "Gradients are divided by it before their sum."},
      &HierarchicalSumOptions::predivide);
  return table;
}

int64_t hierarchical_sum_elements(int64_t elements, const NodeGroups& groups) {
  return round_up(elements, groups.node);
}

BuiltInReducer hierarchical_sum() {
  BuiltInReducer reducer{.name = "hierarchical_sum"};
  reducer.about = "Sums gradients inside each node, and then over the nodes.";
  reducer.bytes = bytes_of_sum;
  reducer.traffic = traffic_of_sum;
  return reducer;
}

}  // namespace runner
