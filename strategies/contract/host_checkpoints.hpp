// Keeps the inputs of recomputed blocks in host memory. Each input is copied to the host during the forward of its block, and
// back during the backward of the next recomputed block.
//
// So at most two inputs are in device memory: that of the current block, and one whose copy is in flight. The input of the last
// recomputed block stays on the device, because its backward comes first. The compute stream waits for a copy before the tensor
// on the device is freed, so later work on that stream can reuse the memory, even if the host runs ahead of the device.
// Source: DeepSpeed's activation_checkpointing.cpu_checkpointing (Rajbhandari et al., ZeRO, SC 2020, section 6.1, P_a+cpu).
#pragma once
#include "strategies/collective/libtorch.hpp"

#include <memory>

#include "strategies/contract/transfers.hpp"

namespace runner {

/// Used by the rank's thread.
class HostCheckpoints {
 public:
  /// The input of one block between its forward and its backward.
  class Input {
   public:
    explicit Input(const torch::Tensor& x) : on_device_(x) {}

   private:
    friend class HostCheckpoints;
    torch::Tensor on_device_, on_host_;
    StreamMark left_, back_;       ///< ends of the copies to the host and to the device
    std::weak_ptr<Input> before_;  ///< input of the previous recomputed block
  };

  /// `pinned`: the host memory is pinned.
  HostCheckpoints(torch::Device device, bool pinned) : device_(device), pinned_(pinned), transfers_(device) {}

  /// Starts to copy `x` to host memory. Frees the previous input on the device; later work on the current stream can reuse its
  /// memory.
  std::shared_ptr<Input> keep(const torch::Tensor& x);
  /// Returns the input on the device; later work on the current stream can use it. Call it once for each input. Starts to copy
  /// the previous input back.
  torch::Tensor take(Input& input);

 private:
  void bring_back(Input& input);

  torch::Device device_;
  bool pinned_;
  Transfers transfers_;
  std::weak_ptr<Input> latest_;
};

}  // namespace runner
