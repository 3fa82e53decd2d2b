// Reads the collectives and the host work of a step from its program.
#include <algorithm>
#include <map>
#include <tuple>

#include "strategies/program/program.hpp"

namespace runner {

namespace {

/// Calls use(instruction, count) for the instructions about units in a step of the job. All micro-batches between the first
/// and the last have equal instructions, so one of them stands for all.
template <typename Use>
void for_each_of_units(const Job& job, const ShardPlan& plan, Use&& use) {
  const int64_t few = std::min(job.accumulation, distinct_micro_batches);
  for (const auto& i : step_program(*job.model, plan, job.recompute, few))
    if (i.block == Instruction::none && i.unit != Instruction::none)
      use(i, i.micro_batch == 1 && few == distinct_micro_batches ? job.accumulation - 2 : 1);
}

std::vector<FlatLayout> layouts_of(const Job& job, const ShardPlan& plan) {
  std::vector<FlatLayout> layouts;
  for (const auto& unit : plan.units) layouts.push_back(layout_of(*job.model, plan, unit));
  return layouts;
}

}  // namespace

std::vector<Traffic> program_traffic(const Job& job, const ShardPlan& plan) {
  std::map<std::tuple<Collective, int, int>, std::pair<int64_t, int64_t>> sums;  // calls, bytes
  const auto add = [&](Collective kind, int ranks, int stride, int64_t calls, int64_t bytes) {
    if (ranks == 1) return;
    auto& sum = sums[{kind, ranks, stride}];
    sum.first += calls;
    sum.second += calls * bytes;
  };
  const auto layouts = layouts_of(job, plan);
  for_each_of_units(job, plan, [&](const Instruction& i, int64_t count) {
    const int64_t elements = layouts[i.unit].total;
    const int64_t gathered = elements * bytes_of(plan.parameter), reduced = elements * bytes_of(plan.reduce);
    if (i.op == Op::start_reduce && plan.own_reducer) return;
    if (i.op == Op::gather_updated && plan.gather_by_broadcast)
      add(Collective::broadcast, plan.shards, 1, count * plan.shards, gathered / plan.shards);
    else if (i.op == Op::start_gather || i.op == Op::gather_updated)
      add(Collective::all_gather, plan.shards, 1, count, gathered);
    else if (i.op == Op::start_reduce && i.axis == Axis::replicas)
      add(Collective::all_reduce, plan.replicas, plan.shards, count, reduced / plan.shards);
    else if (i.op == Op::start_reduce)
      add(plan.reduce_by_all_reduce ? Collective::all_reduce : Collective::reduce_scatter, plan.shards, 1, count,
          reduced);
  });
  std::vector<Traffic> list;
  for (const auto& [key, sum] : sums) {
    auto [kind, ranks, stride] = key;
    list.push_back(make_traffic(kind, ranks, sum.first, sum.second, stride));
  }
  return list;
}

/// Gradients are copied to the host after each reduction. New values are copied back after the update if the shards are on
/// the device, otherwise at each gather.
HostWork program_host_work(const Job& job, const ShardPlan& plan) {
  HostWork work;
  if (!plan.separate_host) return work;
  const bool on_host = plan.optimizer != Tier::device;
  const Axis last_axis = plan.replicas > 1 ? Axis::replicas : plan.shards > 1 ? Axis::shards : Axis::none;
  const auto layouts = layouts_of(job, plan);
  for_each_of_units(job, plan, [&](const Instruction& i, int64_t count) {
    const int64_t shard = layouts[i.unit].shard;
    const bool on_device = plan.units[i.unit].resident || plan.units[i.unit].shards == Tier::device;
    if (i.op == Op::update && on_host) {
      work.updated += count * shard;
      if (on_device) work.copied_bytes += count * shard * bytes_of(plan.parameter);
    }
    if (i.op == Op::start_reduce && i.axis == last_axis && on_host)
      work.copied_bytes += count * shard * bytes_of(plan.gradient);
    if (i.op == Op::start_gather && !on_device) work.copied_bytes += count * shard * bytes_of(plan.parameter);
  });
  return work;
}

}  // namespace runner
