// The programs of many ranks without tensors: in each group all ranks call the same collectives in the same order, and each message
// that is sent is received, in the same order.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>

#include "strategies/program/block_calls.hpp"
#include "strategies/program/block_memory.hpp"
#include "strategies/program/program.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// A collective or a message as one rank sees it.
struct Call {
  Collective kind;
  int64_t calls, bytes;
  uint32_t number;  ///< the micro-batch of a message
  bool operator==(const Call&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Call& call) {
    return out << call.calls << " " << name_of(call.kind) << " of " << call.bytes << " B (" << call.number << ")";
  }
};

/// The calls of all ranks.
struct Calls {
  std::map<std::pair<std::vector<int>, int>, std::vector<Call>> of_groups;  ///< by the ranks of the group and the rank
  std::map<std::pair<int, int>, std::vector<Call>> sent, received;          ///< by sender and receiver
};

TinyRun large_run() {
  TinyRun run;
  run.strategy = "fsdp";
  run.n_layers = 24;
  run.dim = 64;
  run.n_heads = 8;
  run.pipeline = 8;
  run.tensor = 8;
  run.world_size = 512;
  run.accumulation = 16;
  run.global_batch = 8 * run.accumulation;
  return run;
}

void add_calls(const TinyRun& run, int rank, const Job& job, const ParallelPlan& plan, Calls& all) {
  const Mesh& mesh = plan.mesh;
  const UnitCollectives collectives(job, plan);
  const auto group = [&](Axis axis) { return std::pair(mesh.group(rank, axis).ranks(), rank); };
  for (const auto& i : step_program(*job.model, plan, job.recompute, run.accumulation)) {
    for (const auto& call : block_calls(job, plan, i))
      all.of_groups[{job.mesh.group(rank, call.axis).ranks(), rank}].push_back({call.kind, call.calls, call.bytes, 0});
    if (const auto call = collectives.of(i); call && i.axis == Axis::pipeline) {
      const auto ranks = mesh.group(rank, Axis::pipeline).ranks();
      all.of_groups[{{ranks.front(), ranks.back()}, rank}].push_back({call->kind, call->calls, call->bytes, 0});
    } else if (call) {
      all.of_groups[group(i.axis)].push_back({call->kind, call->calls, call->bytes, 0});
    }
    if (!is_transfer(i.op)) continue;
    const auto ranks = mesh.group(rank, Axis::pipeline).ranks();
    const auto place = mesh.coordinate(rank, Axis::pipeline), count = mesh.size(Axis::pipeline);
    const bool up = i.op == Op::send_output || i.op == Op::receive_gradient;
    const int other = ranks[static_cast<size_t>((place + (up ? 1 : count - 1)) % count)];
    const bool input = i.op == Op::receive_input || i.op == Op::send_gradient;
    const Call call{Collective::transfer, 1, input ? input_bytes(job, i.block) : output_bytes(job, i.block),
                    i.micro_batch};
    if (i.op == Op::send_output || i.op == Op::send_gradient)
      all.sent[{rank, other}].push_back(call);
    else
      all.received[{other, rank}].push_back(call);
  }
}

}  // namespace

TEST_CASE("512 ranks on three axes call the same collectives in the same order, and each message is received",
          "[pipeline][tensor][scale]") {
  auto run = large_run();
  run.virtual_stages = GENERATE(1, 3);
  run.schedule = run.virtual_stages > 1 ? PipelineSchedule::interleaved_1f1b : PipelineSchedule::one_f_one_b;
  const Mesh mesh = tiny_mesh(run);
  Calls all;
  for (int rank = 0; rank < run.world_size; ++rank) {
    const auto spec = tiny_spec_of_rank(run, planning_rank(run, rank));
    const Job job = tiny_job(run, spec);
    add_calls(run, rank, job, find_strategy(run.strategy)->entry->plan(job), all);
  }
  std::map<std::vector<int>, std::vector<Call>> of_first;
  for (const auto& [key, calls] : all.of_groups) {
    INFO("rank " << key.second << " in the group of rank " << key.first.front());
    const auto [first, fresh] = of_first.try_emplace(key.first, calls);
    if (!fresh) CHECK(calls == first->second);
  }
  // Tensor groups, shard groups, and the first and the last stage; all of their ranks called something.
  CHECK(of_first.size() == 64 + 64 + 64);
  CHECK(all.of_groups.size() == 512 + 512 + 128);
  REQUIRE(all.sent.size() == all.received.size());
  for (const auto& [pair, messages] : all.sent) {
    INFO(pair.first << " to " << pair.second);
    CHECK(messages == all.received.at(pair));
  }
}
