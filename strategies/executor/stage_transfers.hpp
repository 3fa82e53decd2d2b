// The transfers between the stages of a pipeline on one rank: activations go to the next stage, gradients to the one before.
//
// Each pair of ranks and each kind of message has a channel of its own, so messages need no tags: both sides have them in one order
// (strategies/pipeline/transfers.hpp). A send does not wait for its receiver, but the next one on the same channel does.
#pragma once
#include <map>
#include <utility>

#include "strategies/collective/channel.hpp"
#include "strategies/mesh/mesh.hpp"

namespace runner {

class StageTransfers {
 public:
  /// Makes the channels of all pipelines of the mesh. Collective. `virtual_stages`: of each rank.
  StageTransfers(const Mesh& mesh, int virtual_stages, const World& world) : ranks_(mesh.size(Axis::pipeline)) {
    // With several virtual stages the last rank sends to the first one.
    const int pairs = virtual_stages > 1 ? ranks_ : ranks_ - 1;
    for (const auto& pipeline : mesh.groups(Axis::pipeline)) {
      const auto ranks = pipeline.ranks();
      for (int lower = 0; lower < pairs; ++lower) {
        const int from = ranks[static_cast<size_t>(lower)], to = ranks[static_cast<size_t>((lower + 1) % ranks_)];
        auto forward = make_channel(world, "activations", from, to),
             backward = make_channel(world, "gradients", to, from);
        if (forward) activations_[lower] = {.channel = std::move(forward)};
        if (backward) gradients_[lower] = {.channel = std::move(backward)};
      }
    }
  }

  /// The output of stage `stage` goes to the next one. The input of stage `stage` comes from the one before, into `x`.
  void send_output(int stage, int micro_batch, torch::Tensor x) {
    send(activations_, stage, std::move(x), micro_batch);
  }
  torch::Tensor receive_input(int stage, int micro_batch, torch::Tensor x) {
    return receive(activations_, stage - 1, std::move(x), micro_batch);
  }

  /// The gradient of the input of stage `stage` goes to the one before. That of its output comes from the next one, into `dy`.
  void send_gradient(int stage, int micro_batch, torch::Tensor dy) {
    send(gradients_, stage - 1, std::move(dy), micro_batch);
  }

  torch::Tensor receive_gradient(int stage, int micro_batch, torch::Tensor dy) {
    return receive(gradients_, stage, std::move(dy), micro_batch);
  }

  /// Waits until all messages have been sent.
  void finish() {
    for (auto* lines : {&activations_, &gradients_})
      for (auto& [lower, line] : *lines) {
        if (line.work) std::exchange(line.work, {})->wait();
        line.sent.reset();
      }
  }

 private:
  /// From this rank, or to it.
  struct Line {
    Channel channel;
    torch::Tensor sent = {};  ///< until `work` is done
    Channel::Work work = {};
  };
  using Lines = std::map<int, Line>;  ///< by the rank of the lower stage, of those that this rank sends or receives

  /// On the line between the stages `lower` and `lower` + 1.
  void send(Lines& lines, int lower, torch::Tensor values, int number) const {
    auto& line = lines.at(lower % ranks_);
    if (line.work) line.work->wait();
    line.sent = values.contiguous();
    line.work = line.channel.send(line.sent, number);
  }

  torch::Tensor receive(const Lines& lines, int lower, torch::Tensor values, int number) const {
    lines.at(lower % ranks_).channel.receive(values, number)->wait();
    return values;
  }

  int ranks_;
  Lines activations_, gradients_;
};

}  // namespace runner
