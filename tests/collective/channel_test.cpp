// Channels between ranks that are threads: sizes, order, early receives, and what happens on other groups meanwhile.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <ctime>
#include <random>
#include <thread>

#include "strategies/mesh/mesh.hpp"
#include "tests/collective/operations.hpp"
#include "tests/support/deferred_group.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/ring_channels.hpp"
#include "tests/support/thread_world.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

/// Sleeps up to 300 us, differently at each call and on each rank.
class RandomDelays {
 public:
  explicit RandomDelays(int rank) : random_(static_cast<unsigned>(rank)) {}
  void sleep() { std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300)); }

 private:
  std::minstd_rand random_;
};

at::Tensor integer_of(int64_t value) { return torch::full({1}, value, torch::kInt64); }

double cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace

TEST_CASE("ranks on a ring send messages of any size to both neighbours before they receive", "[collective][channel]") {
  at::set_num_threads(1);
  int ranks = GENERATE(2, 3, 4);
  run_ranks(ranks, [&](World& world) {
    const int64_t most = ranks == 2 ? int64_t{64} << 20 : int64_t{5} << 20;
    RANK_CHECK(check_ring(world, most) == std::vector<std::string>{});
  });
}

TEST_CASE("messages of every dtype keep their bits", "[collective][channel]") {
  at::set_num_threads(1);
  run_ranks(2, [](World& world) {
    auto channel = make_channel(world, "activations", 1, 0);
    for (auto dtype : Coverage().dtypes) {
      auto sent = input_of(1, dtype, 1001).view({7, 11, 13}), received = torch::zeros_like(sent);
      (world.rank == 1 ? channel.send(sent) : channel.receive(received))->wait();
      if (world.rank == 0) RANK_CHECK(torch::equal(received, sent));
    }
  });
}

TEST_CASE("a send does not wait for the receiver, and later sends wait their turn", "[collective][channel]") {
  at::set_num_threads(1);
  run_ranks(2, [](World& world) {
    auto channel = make_channel(world, "activations", 0, 1);
    std::vector<at::Tensor> tensors;
    std::vector<Channel::Work> works;
    const int64_t bytes = int64_t{16} << 20;
    if (world.rank == 0)
      for (int i = 0; i < 3; ++i) works.push_back(channel.send(tensors.emplace_back(message_of(0, i, bytes))));
    barrier(world.control);
    if (world.rank == 1)
      for (int i = 0; i < 3; ++i)
        works.push_back(channel.receive(tensors.emplace_back(torch::empty({bytes / 8}, torch::kInt64))));
    for (auto& work : works) work->wait();
    for (int i = 0; i < 3; ++i) RANK_CHECK(torch::equal(tensors[static_cast<size_t>(i)], message_of(0, i, bytes)));
  });
}

TEST_CASE("a receive that was posted early takes its message without being waited for", "[collective][channel]") {
  at::set_num_threads(1);
  run_ranks(2, [](World& world) {
    auto to_right = make_channel(world, "activations", 0, 1), to_left = make_channel(world, "gradients", 1, 0);
    const auto &mine = world.rank == 0 ? to_right : to_left, &other = world.rank == 0 ? to_left : to_right;
    auto sent = message_of(world.rank, 1, int64_t{16} << 20), received = torch::empty_like(sent);
    auto receive = other.receive(received);
    barrier(world.control);  // both have posted their receives
    mine.send(sent)->wait();
    barrier(world.control);  // most of both messages has arrived before any wait for a receive
    receive->wait();
    RANK_CHECK(torch::equal(received, message_of(1 - world.rank, 1, int64_t{16} << 20)));
  });
}

TEST_CASE("many small messages keep their order in both directions under random delays", "[collective][channel]") {
  at::set_num_threads(1);
  run_ranks(3, [](World& world) {
    RingChannels ring(world);
    RandomDelays delays(world.rank);
    constexpr int rounds = 1500, ahead = 20;
    std::vector<at::Tensor> kept;
    std::vector<Channel::Work> sends;
    for (int i = 0; i < rounds + ahead; ++i) {
      if (i % 7 == 0) delays.sleep();
      if (i < rounds)
        for (const auto* channel : {&ring.to_right, &ring.to_left})
          sends.push_back(channel->send(kept.emplace_back(integer_of(world.rank * rounds + i)), i));
      if (i < ahead) continue;
      auto left = integer_of(-1), right = integer_of(-1);
      auto from_right = ring.from_right.receive(right, i - ahead), from_left = ring.from_left.receive(left, i - ahead);
      from_left->wait();
      from_right->wait();
      RANK_CHECK(left.item<int64_t>() == ring.left * rounds + i - ahead);
      RANK_CHECK(right.item<int64_t>() == ring.right * rounds + i - ahead);
    }
    for (auto& work : sends) work->wait();
  });
}

TEST_CASE("messages pass while collectives run on other groups", "[collective][channel]") {
  at::set_num_threads(1);
  run_ranks(4, [](World& world) {
    auto low = world.make_subgroup({0, 1}, "low"), high = world.make_subgroup({2, 3}, "high");
    RingChannels ring(world);
    RandomDelays delays(world.rank);
    for (int round = 0; round < 30; ++round) {
      const int64_t bytes = (int64_t{3} << 20) + 8 * round;
      auto sent = message_of(world.rank, round, bytes), received = torch::zeros_like(sent);
      auto receive = ring.from_left.receive(received);
      delays.sleep();
      auto send = ring.to_right.send(sent);
      auto sum = all_reduce(world.rank < 2 ? low : high, torch::full({100'000}, world.rank, torch::kFloat32));
      RANK_CHECK(sum.eq(world.rank < 2 ? 1 : 5).all().item<bool>());
      RANK_CHECK(all_reduce(world.group, torch::ones({10})).eq(4).all().item<bool>());
      if (round % 2 == 0) send->wait();
      receive->wait();
      send->wait();
      RANK_CHECK(torch::equal(received, message_of(ring.left, round, bytes)));
    }
  });
}

TEST_CASE("ranks that wait for a message use no processor", "[collective][channel]") {
  run_ranks(2, [](World& world) {
    auto channel = make_channel(world, "activations", 0, 1);
    barrier(world.control);
    if (world.rank == 0) {
      double before = cpu_seconds();  // of both ranks, which are threads
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
      RANK_CHECK(cpu_seconds() - before < 0.06);
      channel.send(integer_of(1))->wait();
    } else {
      auto received = integer_of(0);
      channel.receive(received)->wait();
      RANK_CHECK(received.item<int64_t>() == 1);
    }
  });
}

TEST_CASE("the sender and the receiver of a message record the same call", "[collective][channel]") {
  run_ranks(3, [](World& world) {
    auto channel = make_channel(world, "gradients", 2, 0);
    RANK_CHECK(bool(channel) == (world.rank != 1));
    std::vector<CollectiveCall> calls;
    world.trace->observe([&](const CollectiveCall& call) { calls.push_back(call); });
    auto tensor = torch::ones({10}, torch::kBFloat16);
    if (world.rank == 2) channel.send(tensor, 3)->wait();
    if (world.rank == 0) channel.receive(tensor, 3)->wait();
    world.trace->observe({});
    RANK_CHECK(calls.size() == (world.rank == 1 ? 0 : 1));
    RANK_CHECK(world.trace->groups().back().name == "gradients 2 to 0");
    if (world.rank == 1) return;
    RANK_CHECK(describe(calls[0].operation) == "transfer #2 (20 B of bfloat16, message 3)");
    RANK_CHECK(calls[0].group_size == 2);
  });
  CHECK(ring_bytes(Collective::transfer, 20, 2) == 10);  // of the sender and the receiver, in the mean
}

TEST_CASE("deferred groups give messages when they are waited for, and notice a tensor that is changed during its send",
          "[collective][channel]") {
  std::string text;
  run_ranks(2, [&](World& world) {
    defer_groups(world);
    auto channel = make_channel(world, "activations", 0, 1);
    auto tensor = torch::full({3}, 5.0f), received = torch::zeros({3});
    if (world.rank == 1) {
      auto work = channel.receive(received);
      RANK_CHECK(received.isnan().all().item<bool>());
      work->wait();
      RANK_CHECK(received.eq(5).all().item<bool>());
      channel.receive(received)->wait();
      RANK_CHECK(received.eq(5).all().item<bool>());
      return;
    }
    channel.send(tensor)->wait();
    auto work = channel.send(tensor);
    tensor.add_(1);
    try {
      work->wait();
    } catch (const c10::Error& error) {
      text = error.what_without_backtrace();
    }
  });
  CHECK(text == "a tensor was changed before its send was waited for");
}

TEST_CASE("32 ranks with five axes and channels between the stages of pipelines fit into the shared memory of a host",
          "[collective][channel]") {
  at::set_num_threads(1);
  std::vector<MeshAxis> axes;
  for (auto axis : {Axis::pipeline, Axis::replicate, Axis::shard, Axis::context, Axis::tensor})
    axes.push_back({axis, 2});
  Mesh mesh(32, axes);
  run_ranks(mesh.ranks(), [&](World& world) {
    std::vector<ProcessGroup> mine;
    for (const auto& axis : axes)
      for (const auto& group : mesh.groups(axis.axis))
        if (auto made = world.make_subgroup(group.ranks(), name_of(axis.axis))) mine.push_back(made);
    std::vector<Channel> sends, receives;
    for (const auto& stages : mesh.groups(Axis::pipeline)) {
      const int first = stages.ranks()[0], second = stages.ranks()[1];
      for (const char* name : {"activations", "gradients"})
        for (auto [from, to] : {std::pair(first, second), std::pair(second, first)})  // as virtual stages need it
          if (auto channel = make_channel(world, name, from, to))
            (from == world.rank ? sends : receives).push_back(channel);
    }
    RANK_CHECK(world.trace->groups().size() == 2 + 5 * 16 + 4 * 16);  // with world and control
    RANK_CHECK(mine.size() == axes.size() && sends.size() == 2 && receives.size() == 2);
    for (auto& group : mine) RANK_CHECK(all_reduce(group, torch::ones({2})).eq(2).all().item<bool>());
    auto sent = integer_of(world.rank);
    std::vector<Channel::Work> works;
    for (auto& channel : sends) works.push_back(channel.send(sent));
    for (auto& channel : receives) {
      auto received = integer_of(-1);
      channel.receive(received)->wait();
      RANK_CHECK(received.item<int64_t>() == (world.rank + 16) % 32);
    }
    for (auto& work : works) work->wait();
  });
}
