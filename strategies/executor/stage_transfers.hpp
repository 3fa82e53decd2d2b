// The transfers between the stages of a pipeline on one rank: activations go to the next stage, gradients to the one before.
//
// Each pair of ranks and each kind of message has a channel of its own, so messages need no tags: both sides have them in one order
// (strategies/pipeline/transfers.hpp). A send does not wait for its receiver; the next one on the same channel waits for it.
#pragma once
#include <map>
#include <optional>

#include "strategies/executor/bound_mesh.hpp"

namespace runner {

class StageTransfers {
 public:
  /// Makes the channels of all pipelines of the mesh. Collective. `virtual_stages`: of each rank.
  StageTransfers(const Mesh& mesh, int virtual_stages, World& world);

  /// The output of stage `stage` goes to the next one; the input of stage `stage` comes from the one before, in a tensor of the shape and the
  /// dtype of `like`.
  void send_output(int stage, torch::Tensor x);
  torch::Tensor receive_input(int stage, torch::Tensor like);
  /// The gradient of the input of stage `stage` goes to the one before; that of its output comes from the next one.
  void send_gradient(int stage, torch::Tensor dy);
  torch::Tensor receive_gradient(int stage, torch::Tensor like);
  /// Waits until all messages have been sent.
  void finish();

 private:
  enum class Kind { activation, gradient };
  struct Channel {
    ProcessGroup group;
    torch::Tensor sent = {};  ///< until `work` is done
    c10::intrusive_ptr<c10d::Work> work = {};
  };
  /// Between the ranks of stage `from` and the next one.
  Channel& channel(int from, Kind kind);
  void send(Channel& channel, torch::Tensor values);
  torch::Tensor receive(Channel& channel, torch::Tensor values);

  int ranks_;
  std::map<std::pair<int, Kind>, Channel>
      channels_;  ///< by the rank of the lower stage, of those that this rank is a part of
};

}  // namespace runner
