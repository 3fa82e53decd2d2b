// Calls and bytes of a step, unit by unit.
#include <map>
#include <tuple>

#include "strategies/sharded/plan.hpp"

namespace runner {

namespace {

/// Sums by kind of collective and group.
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

}  // namespace

/// A unit is gathered for its forward, and again for its backward unless it was kept or its backward reads no
/// parameter.
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
      bool again = !unit.keep_after_forward && unit.first_needed_in_backward < job.model->blocks.size();
      sum.add(Collective::all_gather, plan.shards, 1, job.accumulation * (again ? 2 : 1), gathered);
    }
    int64_t reductions = plan.reduce_every_micro_batch ? job.accumulation : 1;
    sum.add(plan.reduce_by_all_reduce ? Collective::all_reduce : Collective::reduce_scatter, plan.shards, 1, reductions,
            reduced);
    sum.add(Collective::all_reduce, plan.replicas, plan.shards, reductions, reduced / plan.shards);
  }
  return sum.list();
}

}  // namespace runner
