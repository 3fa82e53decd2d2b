// Keeps the inputs of recomputed blocks in host memory. Each input is copied to the host during the forward of its block, and
// back during the backward of the next recomputed block.
//
// So at most two inputs are in device memory: that of the current block, and one whose copy is in flight. The input of the last
// recomputed block stays on the device, because its backward comes first. The compute stream waits for a copy before the tensor
// on the device is freed, so later work on that stream can reuse the memory, even if the host runs ahead of the device.
// Source: DeepSpeed's activation_checkpointing.cpu_checkpointing (Rajbhandari et al., ZeRO, SC 2020, section 6.1, P_a+cpu).
#pragma once
#include <utility>
#include <vector>

#include "runner/base/error.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/transfers.hpp"

namespace runner {

/// A stack: the inputs of recomputed blocks, in the order of forward. Used by the rank's thread.
class HostCheckpoints {
 public:
  /// `pinned`: the host memory is pinned.
  HostCheckpoints(torch::Device device, bool pinned) : device_(device), pinned_(pinned), transfers_(device) {}

  /// Starts to copy `x` to host memory. Frees the input below it on the device; later work on the current stream can reuse its
  /// memory.
  void push(const torch::Tensor& x) {
    Input input{.on_device = x.detach(),
                .on_host = torch::empty(x.sizes(), x.options().device(torch::kCPU).pinned_memory(pinned_))};
    transfers_.follow_current();
    input.left = transfers_.copy_kept(input.on_host, input.on_device);
    if (!inputs_.empty()) {
      inputs_.back().left.wait_on_device();
      inputs_.back().on_device.reset();
    }
    inputs_.push_back(std::move(input));
  }

  /// Removes the last input and returns it on the device; later work on the current stream can use it. Starts to copy the input
  /// below it back.
  torch::Tensor pop() {
    RUNNER_CHECK(!inputs_.empty());
    Input input = std::move(inputs_.back());
    inputs_.pop_back();
    bring_back(input);
    input.left.wait_on_device();
    input.back.wait_on_device();
    if (!inputs_.empty()) bring_back(inputs_.back());
    return std::move(input.on_device);
  }

  /// Drops what an interrupted micro-batch has left.
  void clear() { inputs_.clear(); }

 private:
  struct Input {
    torch::Tensor on_device, on_host;
    StreamMark left = {}, back = {};  ///< ends of the copies to the host and to the device
  };
  /// The new tensor on the device may reuse memory that earlier work on the current stream still uses, so the copy waits for that
  /// work.
  void bring_back(Input& input) {
    if (input.on_device.defined()) return;
    input.on_device = torch::empty(input.on_host.sizes(), input.on_host.options().device(device_).pinned_memory(false));
    transfers_.follow_current();
    input.back = transfers_.copy_kept(input.on_device, input.on_host);
  }

  torch::Device device_;
  bool pinned_;
  Transfers transfers_;
  std::vector<Input> inputs_;
};

}  // namespace runner
