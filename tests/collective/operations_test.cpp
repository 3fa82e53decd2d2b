// The shared-memory backend with threads as ranks: all operations, dtypes, sizes and numbers of ranks; subgroups.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <mutex>

#include "strategies/collective/libtorch.hpp"
#include "tests/collective/operations.hpp"
#include "tests/support/thread_world.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// Failures of all ranks.
class Findings {
 public:
  void add(const std::vector<std::string>& lines) {
    std::lock_guard lock(mutex_);
    lines_.insert(lines_.end(), lines.begin(), lines.end());
  }
  void expect(bool right, const std::string& what) {
    if (!right) add({what});
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

at::Tensor number(double value) { return torch::full({1}, value); }

}  // namespace

TEST_CASE("every operation gives the reference's bits for every dtype, size and number of ranks", "[collective]") {
  at::set_num_threads(1);
  int ranks = GENERATE(1, 2, 3, 4, 7);
  Coverage coverage;
  if (ranks > 4) coverage.large.clear();
  Findings findings;
  run_ranks(ranks, [&](World& world) { findings.add(OperationCheck(world.group, coverage).run()); });
  CHECK(findings.lines() == std::vector<std::string>{});
}

TEST_CASE("sums use a binary tree, so reducing halves first gives the same bits as one reduction", "[collective]") {
  at::set_num_threads(1);
  Findings findings;
  run_ranks(4, [&](World& world) {
    auto input = input_of(world.rank, torch::kFloat32, 10'001);
    auto at_once = all_reduce(world.group, input.clone());
    auto low = world.make_subgroup({0, 1}, "low"), high = world.make_subgroup({2, 3}, "high");
    auto even = world.make_subgroup({0, 2}, "even"), odd = world.make_subgroup({1, 3}, "odd");
    auto half = all_reduce(world.rank < 2 ? low : high, input.clone());
    findings.expect(torch::equal(all_reduce(world.rank % 2 == 0 ? even : odd, half), at_once), "halves");
    auto in_order = (input_of(0, torch::kFloat32, 10'001) + input_of(1, torch::kFloat32, 10'001)) +
                    (input_of(2, torch::kFloat32, 10'001) + input_of(3, torch::kFloat32, 10'001));
    findings.expect(torch::equal(at_once, in_order), "order");
  });
  CHECK(findings.lines() == std::vector<std::string>{});
}

TEST_CASE("disjoint subgroups work at the same time, and overlapping groups work in turn", "[collective]") {
  at::set_num_threads(1);
  Findings findings;
  run_ranks(4, [&](World& world) {
    auto low = world.make_subgroup({0, 1}, "low"), high = world.make_subgroup({2, 3}, "high");
    auto middle = world.make_subgroup({1, 2}, "middle"), turned = world.make_subgroup({3, 0, 2}, "turned");
    findings.expect(low.defined() == (world.rank < 2), "only members have a group");
    auto mine = world.rank < 2 ? low : high;
    for (int round = 0; round < 200; ++round) {
      double sum = all_reduce(mine, number(world.rank + round)).item<double>();
      findings.expect(sum == (world.rank < 2 ? 1 : 5) + 2 * round, "halves");
      if (middle) findings.expect(all_reduce(middle, number(world.rank)).item<double>() == 3, "middle");
      if (turned) {
        auto gathered = all_gather(turned, number(world.rank));
        findings.expect(torch::equal(gathered, torch::tensor({3.0f, 0.0f, 2.0f})),
                        "a group's ranks are in the order given");
      }
      findings.expect(all_reduce(world.group, number(1)).item<double>() == 4, "world");
    }
  });
  CHECK(findings.lines() == std::vector<std::string>{});
}

TEST_CASE("ranks that are threads of one process may enter and leave a barrier at the same time", "[collective]") {
  std::atomic<int> entered = 0;
  Findings findings;
  run_ranks(4, [&](World& world) {
    for (int round = 1; round <= 3000; ++round) {
      ++entered;
      barrier(world.control);
      findings.expect(entered >= 4 * round, "a rank left before all had entered");
    }
  });
  CHECK(findings.lines() == std::vector<std::string>{});
}

TEST_CASE("the world's group and its control group share a backend, but have separate traces", "[collective]") {
  at::set_num_threads(1);
  Findings findings;
  run_ranks(2, [&](World& world) {
    std::vector<CollectiveCall> calls;
    world.trace->observe([&](const CollectiveCall& call) { calls.push_back(call); });
    all_reduce(world.group, torch::zeros({10}));
    all_gather(world.control, torch::zeros({3}, torch::kFloat64));
    auto pair = world.make_subgroup({1, 0}, "pair");
    broadcast(pair, torch::zeros({5}, torch::kInt64), 1);
    barrier(world.control);
    world.trace->observe({});
    all_reduce(world.group, torch::zeros({10}));
    findings.expect(calls.size() == 4, "what was observed");
    auto is = [&](size_t i, int group, const std::string& text) {
      findings.expect(calls[i].group == group && calls[i].group_size == 2 && describe(calls[i].operation) == text,
                      fmt::format("call {}: {}", i, describe(calls[i].operation)));
    };
    is(0, World::group_index, "all_reduce #1 (40 B of float32)");
    is(1, World::control_index, "all_gather #1 (48 B of float64)");
    is(2, 2, "broadcast #1 (40 B of int64 from rank 1)");
    is(3, World::control_index, "barrier #2");
  });
  CHECK(findings.lines() == std::vector<std::string>{});
}

TEST_CASE("a collective with several tensors is refused", "[collective]") {
  std::vector<std::string> texts(2);
  run_ranks(2, [&](World& world) {
    std::vector<at::Tensor> two{number(1), number(2)};
    try {
      world.group->allreduce(two)->wait();
    } catch (const std::exception& error) {
      texts[static_cast<size_t>(world.rank)] = error.what();
    }
  });
  for (const auto& text : texts)
    CHECK(text.find("a collective over shared memory takes one tensor, not 2") != std::string::npos);
}
