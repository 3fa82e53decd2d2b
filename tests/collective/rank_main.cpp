// One rank of the process tests. Makes its world from the environment, runs the mode in the first argument, and prints
// the result on stdout.
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "runner/base/error.hpp"
#include "strategies/collective/divergence.hpp"
#include "strategies/collective/divergence_watch.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/reduction.hpp"
#include "tests/collective/operations.hpp"
#include "tests/support/ring_channels.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void say(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

WorldOptions options() {
  WorldOptions options = world_options_from_environment();
  options.backend = variable("BACKEND");
  options.timeout = std::chrono::milliseconds(std::stoi("0" + variable("TIMEOUT_MS")));
  if (options.timeout.count() == 0) options.timeout = std::chrono::seconds(60);
  options.rendezvous_timeout =
      std::chrono::seconds(variable("RENDEZVOUS_S").empty() ? 30 : std::stoi(variable("RENDEZVOUS_S")));
  options.divergence_patience = std::chrono::milliseconds(800);
  options.late_after = std::chrono::milliseconds(variable("LATE_MS").empty() ? 60'000 : std::stoi(variable("LATE_MS")));
  options.on_late = say;
  options.on_diverged = [](const std::string& verdict) {
    say(verdict);
    ::_exit(1);
  };
  return options;
}

void check_operations(World& world) {
  Coverage coverage;
  if (variable("BACKEND") == "gloo") {
    coverage.exact = false;
    coverage.dtypes = coverage.large = {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kInt64};
  }
  for (const auto& failure : OperationCheck(world.group, coverage).run()) say(failure);
  say("checked");
}

void reduce_for_ever(World& world) {
  for (int round = 0;; ++round) {
    all_reduce(world.group, torch::ones({1 << 20}));
    if (round == 10) say("running");
  }
}

/// Rank 1 calls another collective than the other ranks.
void reduce_or_gather(World& world) {
  all_reduce(world.group, torch::ones({7}));
  world.rank == 1 ? all_gather(world.group, torch::ones({1 << 20})) : all_reduce(world.group, torch::ones({1 << 20}));
}

void reduce_more_on_rank_1(World& world) {
  all_reduce(world.group, torch::ones({world.rank == 1 ? 1 << 20 : 1 << 19}));
}

void vote_on_rank_1(World& world) {
  world.rank == 1 ? all_gather(world.control, torch::ones({3})) : all_reduce(world.group, torch::ones({9}));
}

void require_agreement_now(World& world) {
  auto words = agreement_words(*world.trace);
  auto sums = torch::tensor({words[0], words[1]}, torch::kFloat64);
  all_reduce(world.control, sums);
  require_agreement(world, {sums[0].item<double>(), sums[1].item<double>()});
}

/// Gloo adds an equal number of bytes with a different dtype on each rank and reports no error.
void reduce_integers_on_rank_1(World& world) {
  all_reduce(world.group, torch::ones({5}, world.rank == 1 ? torch::kInt32 : torch::kFloat32));
  require_agreement_now(world);
}

void be_slow_on_rank_1(World& world) {
  all_reduce(world.group, torch::ones({5}));
  if (world.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  all_reduce(world.group, torch::ones({5}));
  say("together again");
}

/// Small tensors have the bits of a sum in one place, over every transport.
void check_small_sums(World& world) {
  constexpr int64_t count = 12;
  auto of = [&](int rank) {
    return torch::rand({count}, at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(rank)),
                       torch::kFloat64) *
           (rank % 2 == 0 ? 1e15 : -1e15);
  };
  std::vector<at::Tensor> inputs;
  std::vector<const std::byte*> rows;
  for (int rank = 0; rank < world.size; ++rank) {
    inputs.push_back(of(rank));
    rows.push_back(static_cast<const std::byte*>(inputs.back().data_ptr()));
  }
  auto expected = torch::empty({count}, torch::kFloat64);
  reduction_of(torch::kFloat64, Op::SUM)(rows.data(), world.size, static_cast<std::byte*>(expected.data_ptr()), count);
  for (int round = 0; round < 100; ++round)
    if (!torch::equal(all_reduce(world.control, of(world.rank)), expected)) say("other bits");
  say("checked");
}

/// Rank 1 is busy for ever, without a call.
void stay_away_on_rank_1(World& world) {
  all_reduce(world.group, torch::ones({5}));
  say("running");
  if (world.rank == 1) std::this_thread::sleep_for(std::chrono::hours(1));
  all_reduce(world.group, torch::ones({6}));
}

void check_transfers(World& world) {
  for (const auto& failure : check_ring(world, int64_t{64} << 20)) say(failure);
  say("checked");
}

void transfer_for_ever(World& world) {
  RingChannels ring(world);
  auto sent = torch::ones({1 << 20}), received = torch::empty_like(sent);
  for (int round = 0;; ++round) {
    auto work = ring.to_right.send(sent);
    ring.from_left.receive(received)->wait();
    work->wait();
    if (round == 10) say("running");
  }
}

void wait_for_a_message(World& world) {
  auto channel = make_channel(world, "activations", 1, 0);
  auto received = torch::ones({5});
  if (world.rank == 1) std::this_thread::sleep_for(std::chrono::hours(1));
  auto work = channel.receive(received);
  say("running");
  work->wait();
}

/// Rank 1 expects another message first.
void swap_messages_on_rank_1(World& world) {
  auto channel = make_channel(world, "activations", 0, 1);
  auto tensor = torch::ones({5});
  for (int number : world.rank == 0 ? std::vector{1, 2, 3} : std::vector{1, 3, 2})
    (world.rank == 0 ? channel.send(tensor, number) : channel.receive(tensor, number))->wait();
}

/// The digests of the ranks differ, because rank 1 leaves out a message. The other messages arrive.
void leave_out_a_message(World& world) {
  auto channel = make_channel(world, "gradients", 2, 1);
  auto tensor = torch::ones({5});
  std::vector<Channel::Work> works;
  if (world.rank == 2) works = {channel.send(tensor), channel.send(tensor)};
  if (world.rank == 1) channel.receive(tensor)->wait();
  require_agreement_now(world);
}

const std::map<std::string, std::function<void(World&)>> modes = {
    {"check", check_operations},
    {"for_ever", reduce_for_ever},
    {"another_kind", reduce_or_gather},
    {"another_size", reduce_more_on_rank_1},
    {"another_group", vote_on_rank_1},
    {"another_dtype", reduce_integers_on_rank_1},
    {"slow", be_slow_on_rank_1},
    {"small_sums", check_small_sums},
    {"stay_away", stay_away_on_rank_1},
    {"transfers", check_transfers},
    {"transfer_for_ever", transfer_for_ever},
    {"wait_for_message", wait_for_a_message},
    {"swapped_messages", swap_messages_on_rank_1},
    {"message_left_out", leave_out_a_message},
};

}  // namespace

int main(int, char** argv) {
  at::set_num_threads(1);
  std::signal(SIGPIPE, SIG_IGN);  // as in a worker: a socket to a rank that is gone gives an error
  World world;
  try {
    world = make_world(options());
    modes.at(argv[1])(world);
    return 0;
  } catch (const Error& error) {
    say(error.what());
  } catch (const c10::Error& error) {
    if (world.watch) world.watch->ask();
    say(error.what_without_backtrace());
  } catch (const std::exception& error) {
    if (world.watch) world.watch->ask();
    say(error.what());
  }
  return 1;
}
