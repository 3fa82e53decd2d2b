// Messages from one rank to another, as the stages of a pipeline send them to their neighbours.
#pragma once
#include <fmt/format.h>

#include <string>

#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/world.hpp"

namespace runner {

/// Delivers messages in the order of the sends. Both ranks know shapes and dtypes. A send never makes its rank wait for the receiver, so
/// two ranks may send to each other first, over two channels; and a receive can start long before its message is needed. Transfers of a
/// channel have no order with respect to other channels and to collectives.
///
/// A Work is done when its wait() returns; on an accelerator, that is when the current stream comes to that point. Each Work must be
/// waited for. That of a send may wait until the other rank has called receive, so a rank calls its own receives before. wait() throws
/// what a collective of the transport would throw: a rank is gone, the timeout is over, or the ranks give different sizes, dtypes or
/// numbers to a message (over shared memory; elsewhere, require_agreement() reports that). If a rank dies while Gloo is in the middle of a
/// message, Gloo may notice it only after the timeout. The supervisor of the rank notices it at once, and ends the others.
class Channel {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  /// No channel, as ranks other than the two have it.
  Channel() = default;
  /// `pair`: a group of the sender and the receiver, in this order.
  explicit Channel(ProcessGroup pair) : pair_(std::move(pair)) {}
  explicit operator bool() const { return pair_.defined(); }

  /// On the first rank. `tensor` is contiguous, and unchanged until the Work is done. `number`: any number that both ranks know, such as
  /// that of the micro-batch. It is not sent, but recorded: if the ranks do not agree on what the message is, they get an error.
  Work send(const at::Tensor& tensor, int number = 0) const {
    std::vector<at::Tensor> tensors{tensor};
    return pair_->send(tensors, 1, number);
  }
  /// On the second rank. `tensor` is contiguous, and not used until the Work is done.
  Work receive(const at::Tensor& tensor, int number = 0) const {
    std::vector<at::Tensor> tensors{tensor};
    return pair_->recv(tensors, 0, number);
  }

 private:
  ProcessGroup pair_;
};

/// A channel from rank `from` of the world to rank `to`. Like World::make_subgroup, this is a collective call over all ranks. The two ranks
/// connect, so that no later transfer waits for that (NCCL makes a communicator in the first transfer). Messages about transfers name
/// the channel "NAME FROM to TO", as in "activations 0 to 1".
inline Channel make_channel(const World& world, const std::string& name, int from, int to) {
  Channel channel(world.make_subgroup({from, to}, fmt::format("{} {} to {}", name, from, to)));
  if (!channel) return channel;
  auto first = at::zeros({1}, at::device(world.device).dtype(at::kByte));
  (world.rank == from ? channel.send(first) : channel.receive(first))->wait();
  return channel;
}

}  // namespace runner
