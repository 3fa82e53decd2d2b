// Checks of transfers between neighbours on a ring. They run on threads and in processes, over shared memory and Gloo, and on devices.
#pragma once
#include <fmt/format.h>

#include <string>
#include <vector>

#include "strategies/collective/channel.hpp"
#include "strategies/collective/shm_layout.hpp"

namespace runner::testing {

/// What rank `rank` sends as its message `number`: `bytes` bytes that differ between ranks, numbers and places.
inline at::Tensor message_of(int rank, int number, int64_t bytes) {
  const bool words = bytes % 8 == 0;
  auto content = torch::arange(words ? bytes / 8 : bytes, torch::kInt64) * 1'000'003 + rank * 31 + number * 7;
  return words ? content : content.to(torch::kUInt8);
}

/// The channels of a rank of a ring: activations go to the right, gradients go to the left.
struct RingChannels {
  Channel to_right, from_left, to_left, from_right;
  int left, right;  ///< neighbours

  explicit RingChannels(const World& world)
      : left((world.rank + world.size - 1) % world.size), right((world.rank + 1) % world.size) {
    for (int from = 0; from < world.size; ++from) {
      const int to = (from + 1) % world.size;
      auto activations = make_channel(world, "activations", from, to);
      auto gradients = make_channel(world, "gradients", to, from);
      if (from == world.rank) to_right = activations, from_right = gradients;
      if (to == world.rank) from_left = activations, to_left = gradients;
    }
  }
};

/// Sizes around those of chunks and of the ring of chunks.
inline std::vector<int64_t> sizes_of_messages(int64_t most) {
  const auto chunk = static_cast<int64_t>(shm_chunk_bytes), ring = chunk * shm_ring_chunks;
  std::vector<int64_t> sizes;
  for (int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{8}, int64_t{1001}, chunk - 1, chunk, chunk + 1, ring, ring + 1,
                        int64_t{64} << 20})
    if (bytes <= most) sizes.push_back(bytes);
  return sizes;
}

/// In each round all ranks send to both neighbours first, and then receive. Returns a line for each wrong message.
inline std::vector<std::string> check_ring(const World& world, int64_t most_bytes) {
  RingChannels ring(world);
  std::vector<std::string> failures;
  int number = 0;
  for (int64_t bytes : sizes_of_messages(most_bytes)) {
    ++number;
    auto sent = message_of(world.rank, number, bytes).to(world.device);
    auto right = ring.to_right.send(sent, number), left = ring.to_left.send(sent, number);
    auto check = [&](const Channel& channel, int from) {
      auto received = torch::zeros_like(sent);
      channel.receive(received, number)->wait();
      if (!torch::equal(received.cpu(), message_of(from, number, bytes)))
        failures.push_back(fmt::format("{} bytes from rank {} to rank {} of {}", bytes, from, world.rank, world.size));
    };
    check(ring.from_left, ring.left);
    check(ring.from_right, ring.right);
    right->wait();
    left->wait();
  }
  return failures;
}

}  // namespace runner::testing
