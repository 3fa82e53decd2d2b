// Inputs of recomputed blocks in host memory: each is copied there beside its block's forward, and back beside the
// backward of the recomputed block after it.
//
// The device's memory then has two inputs at most: in forward that of the block at work, in backward that and the next
// one to be needed. The last block's input stays, because its backward comes first. The rank's stream waits for a copy
// before the tensor on the device is freed, so its memory is free at that point of the stream, however far the host is
// ahead. Source: DeepSpeed's activation_checkpointing.cpu_checkpointing (Rajbhandari et al., ZeRO, SC 2020,
// section 6.1, P_a+cpu).
#pragma once
#include "strategies/collective/libtorch.hpp"

#include <memory>

#include "strategies/contract/transfers.hpp"

namespace runner {

/// Used by one thread at a time: the rank's in forward, autograd's in backward.
class HostCheckpoints {
 public:
  /// One block's input between its forward and its backward.
  class Input {
   public:
    explicit Input(const torch::Tensor& x) : on_device_(x) {}

   private:
    friend class HostCheckpoints;
    torch::Tensor on_device_, on_host_;
    StreamMark left_, back_;       ///< the ends of its copies
    std::weak_ptr<Input> before_;  ///< of the recomputed block before it
  };

  explicit HostCheckpoints(torch::Device device) : device_(device), transfers_(device) {}

  /// Begins to copy `x` to host memory. The device's memory of the input before it is free for what the current stream
  /// does from now on.
  std::shared_ptr<Input> keep(const torch::Tensor& x);
  /// The input on the device, once, for what the current stream does from now on; the one before it is on its way.
  torch::Tensor take(Input& input);

 private:
  void bring_back(Input& input);

  torch::Device device_;
  Transfers transfers_;
  std::weak_ptr<Input> latest_;
};

}  // namespace runner
