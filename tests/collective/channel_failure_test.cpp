// Exact error texts of channels over shared memory on every rank. Ranks are threads.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "strategies/collective/channel.hpp"
#include "tests/collective/errors.hpp"
#include "tests/collective/operations.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::Matches;

namespace {

using Body = std::function<void(const Channel&)>;

/// Errors of two ranks with a channel.
Texts channel_errors(const Body& sender, const Body& receiver,
                     std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  return errors(
      2,
      [&](World& world) {
        auto channel = make_channel(world, "activations", 0, 1);
        (world.rank == 0 ? sender : receiver)(channel);
      },
      timeout);
}

at::Tensor ones_of(int64_t numel) { return torch::ones({numel}); }

}  // namespace

TEST_CASE("the error of a message that the receiver does not expect names both sides and the channel",
          "[collective][channel]") {
  // The sender hears of it with a message that cannot have left before.
  auto send_and_go_on = [](const at::Tensor& tensor, int number) {
    return [tensor, number](const Channel& channel) {
      channel.send(ones_of(1), 1)->wait();
      auto wrong = channel.send(tensor, number);
      channel.send(ones_of(8 << 20), 3)->wait();
      wrong->wait();
    };
  };
  auto receive = [](const at::Tensor& tensor, int number) {
    return [tensor, number](const Channel& channel) {
      channel.receive(ones_of(1), 1)->wait();
      channel.receive(tensor, number)->wait();
    };
  };
  auto check = [&](const at::Tensor& sent, int number, const at::Tensor& received, int expected,
                   const std::string& text) {
    CHECK(channel_errors(send_and_go_on(sent, number), receive(received, expected)) == Texts{text, text});
  };
  check(ones_of(10), 2, ones_of(11), 2,
        "ranks diverged: rank 0 is in transfer #3 (40 B of float32, message 2) of activations 0 to 1, rank 1 in "
        "transfer #3 (44 B of float32, message 2) of activations 0 to 1");
  check(ones_of(10), 2, ones_of(10).to(torch::kInt32), 2,
        "ranks diverged: rank 0 is in transfer #3 (40 B of float32, message 2) of activations 0 to 1, rank 1 in "
        "transfer #3 (40 B of int32, message 2) of activations 0 to 1");
  check(ones_of(10), 2, ones_of(10), 5,
        "ranks diverged: rank 0 is in transfer #3 (40 B of float32, message 2) of activations 0 to 1, rank 1 in "
        "transfer #3 (40 B of float32, message 5) of activations 0 to 1");
}

TEST_CASE("a timeout tells which rank waits in which channel, and where the other rank is", "[collective][channel]") {
  auto sleep = [] { std::this_thread::sleep_for(std::chrono::milliseconds(700)); };
  const std::chrono::milliseconds timeout(300);
  SECTION("for a message that is not sent") {
    auto texts = channel_errors(
        [&](const Channel& channel) {
          channel.send(ones_of(1))->wait();
          sleep();
          channel.send(ones_of(2))->wait();
        },
        [&](const Channel& channel) {
          channel.receive(ones_of(1))->wait();
          channel.receive(ones_of(2))->wait();
        },
        timeout);
    CHECK_THAT(texts[1], Matches(R"(rank 1 waited 0\.\d+ s in transfer #3 \(8 B of float32\) of activations 0 to 1: )"
                                 R"(rank 0 is still at transfer #2 \(4 B of float32\) of activations 0 to 1)"));
    CHECK(texts[0] == texts[1]);
  }
  SECTION("for room for a large message") {
    auto texts = channel_errors([&](const Channel& channel) { channel.send(ones_of(2 << 20))->wait(); },
                                [&](const Channel&) { sleep(); }, timeout);
    CHECK_THAT(texts[0], Matches(R"(rank 0 waited 0\.\d+ s in transfer #2 \(8\.00 MiB of float32\) of activations 0 )"
                                 R"(to 1: rank 1 is still at transfer #1 \(1 B of uint8\) of activations 0 to 1)"));
    CHECK(texts[1] == "");
  }
}

TEST_CASE("a rank that ends wakes one that waits for its messages", "[collective][channel]") {
  SECTION("without an error, before its send has ended") {
    CHECK(channel_errors([](const Channel& channel) { channel.send(ones_of(8 << 20)); },
                         [](const Channel& channel) {
                           std::this_thread::sleep_for(std::chrono::milliseconds(200));
                           channel.receive(ones_of(8 << 20))->wait();
                         }) == Texts{"", "rank 0 gave up"});
  }
  SECTION("without an error, when its sends have ended, so their messages arrive") {
    CHECK(channel_errors([](const Channel& channel) { channel.send(ones_of(1 << 20))->wait(); },
                         [](const Channel& channel) {
                           std::this_thread::sleep_for(std::chrono::milliseconds(200));
                           channel.receive(ones_of(1 << 20))->wait();
                         }) == Texts{"", ""});
  }
  SECTION("with an error") {
    Texts woken(2);
    auto body = [&](World& world) {
      auto channel = make_channel(world, "activations", 0, 1);
      if (world.rank == 0) throw std::runtime_error("my own trouble");
      try {
        channel.receive(ones_of(1))->wait();
      } catch (const c10::DistBackendError& error) {
        woken[1] = error.what_without_backtrace();
        throw;
      }
    };
    CHECK_THROWS_WITH(run_ranks(2, body), "my own trouble");
    CHECK(woken == Texts{"", "rank 0 gave up"});
  }
}

TEST_CASE("a channel that has failed keeps failing with its first error", "[collective][channel]") {
  const std::string text =
      "ranks diverged: rank 0 is in transfer #2 (4 B of float32) of activations 0 to 1, rank 1 in transfer #2 (8 B of "
      "float32) of activations 0 to 1";
  Texts received;
  auto texts =
      channel_errors([](const Channel& channel) { channel.send(ones_of(1))->wait(); },
                     [&](const Channel& channel) {
                       std::vector<Channel::Work> works{channel.receive(ones_of(2)), channel.receive(ones_of(1))};
                       for (auto& work : works) try {
                           work->wait();
                         } catch (const c10::DistBackendError& error) {
                           received.push_back(error.what_without_backtrace());
                         }
                     });
  CHECK(received == Texts{text, text});
  CHECK(texts == Texts{"", ""});
}

TEST_CASE("transfers in the wrong direction, of parts of tensors, and beside collectives are refused",
          "[collective][channel]") {
  CHECK(errors(3, [](World& world) {
          std::vector<at::Tensor> one{ones_of(1)};
          world.group->send(one, 1, 0);
        })[0] == "the first rank of a group of two sends, not rank 0 of 3");
  CHECK(errors(2,
               [](World& world) {
                 auto pair = world.make_subgroup({1, 0}, "pair");
                 std::vector<at::Tensor> one{ones_of(1)};
                 world.rank == 0 ? pair->send(one, 0, 0) : pair->recv(one, 1, 0);
               }) == Texts{"the first rank of a group of two sends, not rank 1 of 2",
                           "the second rank of a group of two receives, not rank 0 of 2"});
  CHECK(errors(2, [](World& world) {
          auto pair = world.make_subgroup({0, 1}, "pair");
          all_reduce(pair, ones_of(1));
          Channel channel(pair);
          world.rank == 0 ? channel.send(ones_of(1)) : channel.receive(ones_of(1));
        })[0] == "a group over shared memory has either collectives or transfers, so no transfer after a collective");
  CHECK(errors(2, [](World& world) {
          auto pair = world.make_subgroup({0, 1}, "pair");
          Channel channel(pair);
          (world.rank == 0 ? channel.send(ones_of(1)) : channel.receive(ones_of(1)))->wait();
          barrier(pair);
        })[1] == "a group over shared memory has either collectives or transfers, so no barrier after a transfer");
  CHECK(channel_errors(
            [](const Channel& channel) {
              channel.send(torch::ones({3, 3}).t());
            },
            [](const Channel&) {})[0] == "shared-memory collectives take contiguous CPU tensors");
}
