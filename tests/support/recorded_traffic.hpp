// Records the collectives of each step of a tiny training. Tests compare them with the traffic that the strategy's entry claims.
#pragma once
#include <compare>
#include <map>

#include "strategies/collective/operation.hpp"
#include "tests/support/ring.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

/// Calls of one kind (transfers: of one channel) in groups of `ranks` ranks with distance `stride`.
struct Row {
  std::string collective;
  int ranks, stride;
  int64_t calls, payload_bytes, wire_bytes;
  auto operator<=>(const Row&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Row& row) {
    return out << row.calls << " " << row.collective << " of " << row.payload_bytes << " B, " << row.wire_bytes
               << " B sent, " << row.ranks << " ranks, stride " << row.stride;
  }
};
using Wire = std::vector<Row>;  // sorted

/// Sums calls by kind and group.
class Tally {
 public:
  void add(const CollectiveCall& call) {
    auto& sum = sums_[{call.operation.kind, call.group}];
    auto payload = static_cast<int64_t>(call.operation.bytes);
    ++sum.calls;
    sum.payload += payload;
    const bool exchange = call.operation.kind == Collective::all_to_all && call.operation.root == exchange_root;
    sum.sent += exchange ? payload * call.group_size : sent_on_a_ring(call.operation.kind, payload, call.group_size);
  }
  Wire wire(const std::vector<CollectiveTrace::Group>& groups) const {
    Wire wire;
    for (const auto& [key, sum] : sums_) {
      const auto& ranks = groups.at(static_cast<size_t>(key.second)).ranks;
      auto size = static_cast<int>(ranks.size());
      wire.push_back({name_of(key.first), size, size > 1 ? std::abs(ranks[1] - ranks[0]) : 1, sum.calls, sum.payload,
                      sum.sent / size});
    }
    std::sort(wire.begin(), wire.end());
    return wire;
  }

 private:
  struct Sum {
    int64_t calls = 0, payload = 0;
    int64_t sent = 0;  ///< by all ranks of the group together
  };
  std::map<std::pair<Collective, int>, Sum> sums_;
};

struct StepTraffic {
  Wire strategy, control;
};

/// The traffic of each step, per rank.
inline std::vector<std::vector<StepTraffic>> record_traffic(const TinyRun& run, const Launch& launch = launch_threads) {
  std::vector<std::vector<StepTraffic>> ranks(static_cast<size_t>(run.world_size));
  launch(run.world_size, [&](World& world) {
    Tally strategy_calls, control_calls;
    world.trace->observe([&](const CollectiveCall& call) {
      (call.group == World::control_index ? control_calls : strategy_calls).add(call);
    });
    with_strategy(run, world, [&](Strategy& strategy) {
      for (int64_t step = 0; step < run.steps; ++step) {
        strategy_calls = control_calls = {};
        strategy.step(tiny_input(run, world.rank, step));
        auto groups = world.trace->groups();
        ranks[static_cast<size_t>(world.rank)].push_back({strategy_calls.wire(groups), control_calls.wire(groups)});
      }
    });
  });
  return ranks;
}

/// The claim of the strategy's entry for a rank of a run on `accelerator`.
inline Wire claimed_traffic(const TinyRun& run, const Accelerator& accelerator = {}, int rank = 0) {
  ModelSpec spec = tiny_spec_of_rank(run, rank);
  Job job = tiny_job(run, spec);
  job.accelerator = accelerator;
  Wire wire;
  for (const auto& part : find_strategy(run.strategy)->entry->traffic(job))
    wire.push_back({part.collective, part.ranks, part.stride, part.calls, part.payload_bytes, part.wire_bytes});
  std::sort(wire.begin(), wire.end());
  return wire;
}

}  // namespace runner::testing
