// Predicts the collectives of a step of a ShardPlan, and its copies to and from host memory.
#include <map>
#include <tuple>

#include "strategies/sharded/plan.hpp"

namespace runner {

namespace {

/// Sums calls and bytes for each kind of collective and each shape of group.
class Sum {
 public:
  void add(Collective kind, int ranks, int stride, int64_t calls, int64_t bytes) {
    if (ranks == 1 || calls == 0) return;
    auto& sum = sums_[{kind, ranks, stride}];
    sum.first += calls;
    sum.second += calls * bytes;
  }
  std::vector<Traffic> list() const {
    std::vector<Traffic> list;
    for (const auto& [key, sum] : sums_) {
      auto [kind, ranks, stride] = key;
      list.push_back(make_traffic(kind, ranks, sum.first, sum.second, stride));
    }
    return list;
  }

 private:
  std::map<std::tuple<Collective, int, int>, std::pair<int64_t, int64_t>> sums_;  // calls, bytes
};

/// Number of gathers of a non-resident unit in one step: one for each forward, and one for each backward unless the unit stays
/// gathered or its backward reads no parameter.
int64_t gathers(const Job& job, const ShardUnit& unit) {
  bool again = !unit.keep_after_forward && unit.first_needed_in_backward < job.model->blocks.size();
  return job.accumulation * (again ? 2 : 1);
}

int64_t reductions(const Job& job, const ShardPlan& plan) {
  return plan.reduce_every_micro_batch ? job.accumulation : 1;
}

}  // namespace

std::vector<Traffic> sharded_traffic(const Job& job, const ShardPlan& plan) {
  Sum sum;
  for (const auto& unit : plan.units) {
    FlatLayout layout = make_flat_layout(*job.model, unit.slots, plan.shards);
    int64_t gathered = layout.total * bytes_of(plan.parameter), reduced = layout.total * bytes_of(plan.reduce);
    if (unit.resident && plan.gather_by_broadcast) {
      sum.add(Collective::broadcast, plan.shards, 1, plan.shards, gathered / plan.shards);
    } else if (unit.resident) {
      sum.add(Collective::all_gather, plan.shards, 1, 1, gathered);
    } else {
      sum.add(Collective::all_gather, plan.shards, 1, gathers(job, unit), gathered);
    }
    sum.add(plan.reduce_by_all_reduce ? Collective::all_reduce : Collective::reduce_scatter, plan.shards, 1,
            reductions(job, plan), reduced);
    sum.add(Collective::all_reduce, plan.replicas, plan.shards, reductions(job, plan), reduced / plan.shards);
  }
  return sum.list();
}

/// Gradients are copied to the host after each reduction. New values are copied back once if the shards are on the device,
/// otherwise at each gather.
HostWork sharded_host_work(const Job& job, const ShardPlan& plan) {
  HostWork work;
  if (!plan.separate_host) return work;
  for (const auto& unit : plan.units) {
    int64_t shard = make_flat_layout(*job.model, unit.slots, plan.shards).shard;
    bool on_device = unit.resident || unit.shards == Tier::device;
    if (plan.optimizer != Tier::device) {
      work.updated += shard;
      work.copied_bytes += reductions(job, plan) * shard * bytes_of(plan.gradient);
    }
    if (on_device && plan.optimizer != Tier::device) work.copied_bytes += shard * bytes_of(plan.parameter);
    if (!on_device) work.copied_bytes += gathers(job, unit) * shard * bytes_of(plan.parameter);
  }
  return work;
}

}  // namespace runner
