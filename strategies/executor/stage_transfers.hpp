// The transfers between the stages of a pipeline on one rank: activations go to the next stage, gradients to the one before.
//
// Each pair of ranks and each kind of message has a channel of its own, so messages need no tags: both sides have them in one order
// (strategies/pipeline/transfers.hpp). A send does not wait for its receiver, but the next one on the same channel does.
#pragma once
#include <map>

#include "strategies/collective/channel.hpp"
#include "strategies/mesh/mesh.hpp"

namespace runner {

class StageTransfers {
 public:
  /// Makes the channels of all pipelines of the mesh. Collective. `virtual_stages`: of each rank.
  StageTransfers(const Mesh& mesh, int virtual_stages, const World& world);

  /// The output of stage `stage` goes to the next one. The input of stage `stage` comes from the one before, into `x`.
  void send_output(int stage, int micro_batch, torch::Tensor x);
  torch::Tensor receive_input(int stage, int micro_batch, torch::Tensor x);
  /// The gradient of the input of stage `stage` goes to the one before. That of its output comes from the next one, into `dy`.
  void send_gradient(int stage, int micro_batch, torch::Tensor dy);
  torch::Tensor receive_gradient(int stage, int micro_batch, torch::Tensor dy);
  /// Waits until all messages have been sent.
  void finish();

 private:
  /// From this rank, or to it.
  struct Line {
    Channel channel;
    torch::Tensor sent = {};  ///< until `work` is done
    Channel::Work work = {};
    void send(torch::Tensor values, int number);
    torch::Tensor receive(torch::Tensor values, int number) const;
  };
  Line& activations_after(int stage) { return activations_.at(stage % ranks_); }
  Line& gradients_after(int stage) { return gradients_.at(stage % ranks_); }

  int ranks_;
  std::map<int, Line> activations_,
      gradients_;  ///< by the rank of the lower stage, of those that this rank sends or receives
};

}  // namespace runner
