// Collectives on the simulated devices: right values, and reports where a rank does not wait.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <mutex>

#include "strategies/collective/channel.hpp"
#include "tests/device/device_world.hpp"
#include "tests/device/support.hpp"
#include "tests/support/rank_check.hpp"

using namespace runner;
using namespace runner::simulated;
using Catch::Matchers::ContainsSubstring;

namespace {

torch::Tensor full(const World& world, int64_t elements, double value) {
  return torch::full({elements}, value, torch::TensorOptions().device(world.device));
}

bool is(const torch::Tensor& tensor, std::vector<float> values) {
  return torch::equal(tensor.cpu(), torch::tensor(values));
}

enum class Mistake { none, output_used_early, input_changed_early };

/// An all-gather of two ranks.
void gather(World& world, Mistake mistake) {
  auto mine = full(world, 2, world.rank + 1), all = torch::empty({4}, mine.options());
  auto work = world.group->_allgather_base(all, mine);
  if (mistake == Mistake::input_changed_early) mine.fill_(100);
  if (mistake == Mistake::output_used_early) (all + 1).sum();
  work->wait();
  bool right = is(all, {1, 1, 2, 2});
  if (mistake == Mistake::none) RANK_CHECK(right);
}

}  // namespace

TEST_CASE("collectives between simulated devices give the sums of the shared-memory transport",
          "[device][collectives]") {
  for (const auto& [name, policy] : all_policies()) {
    INFO(name);
    Simulation simulation(policy);
    run_on_devices(3, [](World& world) {
      auto sum = full(world, 5, world.rank + 1);
      std::vector<at::Tensor> tensors{sum};
      world.group->allreduce(tensors)->wait();
      RANK_CHECK(is(sum, {6, 6, 6, 6, 6}));

      auto rows =
          torch::arange(6, torch::TensorOptions().device(world.device).dtype(torch::kFloat32)) * (world.rank + 1);
      auto part = torch::empty({2}, rows.options());
      world.group->_reduce_scatter_base(part, rows)->wait();
      RANK_CHECK(is(part, {12.0f * static_cast<float>(world.rank), 12.0f * static_cast<float>(world.rank) + 6}));

      auto whole = full(world, 3, -1);
      whole.narrow(0, world.rank, 1).fill_(world.rank);
      auto own = whole.narrow(0, world.rank, 1);
      world.group->_allgather_base(whole, own)->wait();  // in place
      RANK_CHECK(is(whole, {0, 1, 2}));

      std::vector<at::Tensor> sent{full(world, 2, world.rank)};
      world.group->broadcast(sent, {.rootRank = 1})->wait();
      RANK_CHECK(is(sent[0], {1, 1}));

      auto given = full(world, 3, world.rank), got = full(world, 3, -1);
      std::vector<int64_t> equal;
      world.group->alltoall_base(got, given, equal, equal)->wait();
      RANK_CHECK(is(got, {0, 1, 2}));

      // Rank 0 and 1 exchange two elements, and rank 2 keeps its own.
      std::vector<int64_t> splits(3, 0);
      splits[world.rank == 2 ? 2 : static_cast<size_t>(1 - world.rank)] = 2;
      auto mine = full(world, 2, world.rank), theirs = full(world, 2, -1);
      world.group->alltoall_base(theirs, mine, splits, splits)->wait();
      RANK_CHECK(is(theirs, std::vector<float>(2, world.rank == 2 ? 2.0f : static_cast<float>(1 - world.rank))));

      auto pair = world.make_subgroup({0, 2}, "pair");
      RANK_CHECK((pair != nullptr) == (world.rank != 1));
      if (!pair) return;
      std::vector<at::Tensor> two{full(world, 1, world.rank + 1)};
      pair->allreduce(two)->wait();
      RANK_CHECK(is(two[0], {4}));
    });
    CHECK(take_reports() == std::vector<std::string>());
  }
}

TEST_CASE("a message that is used before wait(), or changed before its send has ended, is reported",
          "[device][collectives][race]") {
  for (const bool at_receiver : {true, false}) {
    Simulation simulation;
    run_on_devices(2, [&](World& world) {
      auto channel = make_channel(world, "activations", 0, 1);
      auto tensor = full(world, 2, world.rank + 1);
      auto work = world.rank == 0 ? channel.send(tensor) : channel.receive(tensor);
      if (world.rank == 1 && at_receiver) (tensor + 1).sum();
      if (world.rank == 0 && !at_receiver) tensor.fill_(100);
      work->wait();
      RANK_CHECK(!at_receiver || is(tensor, {1, 1}));
    });
    auto reports = take_reports();
    REQUIRE(reports.size() == 1);
    CHECK_THAT(reports[0], ContainsSubstring(at_receiver ? "the read by `aten::add.out` on device 1"
                                                         : "the write by `aten::fill_.Scalar` on device 0"));
  }
}

TEST_CASE("collectives are entered into the trace as on any transport", "[device][collectives]") {
  Simulation simulation;
  run_on_devices(2, [](World& world) {
    auto before = world.trace->count();
    gather(world, Mistake::none);
    RANK_CHECK(world.trace->count() == before + 1);
    RANK_CHECK(world.trace->recent().back().group == World::group_index);
  });
}

TEST_CASE("the output of a collective that is used before wait() is reported", "[device][collectives][race]") {
  for (const auto& [name, policy] : all_policies()) {
    INFO(name);
    Simulation simulation(policy);
    run_on_devices(2, [](World& world) { gather(world, Mistake::output_used_early); });
    auto reports = take_reports();
    REQUIRE(reports.size() == 2);  // of each rank
    CHECK_THAT(reports[0], ContainsSubstring("the read by `aten::add.out` on device") &&
                               ContainsSubstring("is not ordered after the write by `all_gather` on device"));
  }
}

TEST_CASE("the input of a collective that is changed before wait() is reported", "[device][collectives][race]") {
  for (const auto& [name, policy] : all_policies()) {
    INFO(name);
    Simulation simulation(policy);
    run_on_devices(2, [](World& world) { gather(world, Mistake::input_changed_early); });
    auto reports = take_reports();
    REQUIRE(reports.size() == 2);
    CHECK_THAT(reports[0], ContainsSubstring("the write by `aten::fill_.Scalar` on device") &&
                               ContainsSubstring("is not ordered after the read by `all_gather` on device"));
  }
}

TEST_CASE("tensors of a collective whose work is dropped stay until it has ended", "[device][collectives]") {
  for (const auto& [name, policy] : all_policies()) {
    INFO(name);
    Simulation simulation(policy);
    run_on_devices(2, [](World& world) {
      auto kept = full(world, 1, 0);
      for (int i = 0; i < 3; ++i) {
        std::vector<at::Tensor> tensors{full(world, 100, 1)};
        world.group->allreduce(tensors);
      }
      std::vector<at::Tensor> tensors{kept};
      world.group->allreduce(tensors)->wait();
      RANK_CHECK(is(kept, {0}));
    });
    CHECK(take_reports() == std::vector<std::string>());
  }
}

TEST_CASE("a rank that fails wakes the others, and its error is thrown", "[device][collectives]") {
  Simulation simulation;
  auto run = [] {
    run_on_devices(3, [](World& world) {
      if (world.rank == 1) throw std::range_error("rank 1 gives up");
      std::vector<at::Tensor> tensors{full(world, 1, 1)};
      world.group->allreduce(tensors)->wait();
      tensors[0].cpu();
      barrier(world.control);
    });
  };
  CHECK_THROWS_WITH(run(), "rank 1 gives up");
  take_reports();
}

TEST_CASE("ranks that call different collectives get an error that names both", "[device][collectives]") {
  Simulation simulation;
  auto run = [] {
    run_on_devices(2, [](World& world) {
      auto x = full(world, 2, 1), y = full(world, 4, 1);
      if (world.rank == 0)
        world.group->_allgather_base(y, x)->wait();
      else
        world.group->_reduce_scatter_base(x, y)->wait();
      x.cpu();
      barrier(world.control);
    });
  };
  CHECK_THROWS_WITH(run(), ContainsSubstring("all_gather") && ContainsSubstring("reduce_scatter"));
  take_reports();
}
