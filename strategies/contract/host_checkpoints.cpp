#include "strategies/contract/host_checkpoints.hpp"

#include <utility>

#include "runner/base/error.hpp"

namespace runner {

void HostCheckpoints::push(const torch::Tensor& x) {
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

torch::Tensor HostCheckpoints::pop() {
  RUNNER_CHECK(!inputs_.empty());
  Input input = std::move(inputs_.back());
  inputs_.pop_back();
  bring_back(input);
  input.left.wait_on_device();
  input.back.wait_on_device();
  if (!inputs_.empty()) bring_back(inputs_.back());
  return std::move(input.on_device);
}

/// The new tensor on the device may reuse memory that earlier work on the current stream still uses, so the copy waits for that
/// work.
void HostCheckpoints::bring_back(Input& input) {
  if (input.on_device.defined()) return;
  input.on_device = torch::empty(input.on_host.sizes(), input.on_host.options().device(device_).pinned_memory(false));
  transfers_.follow_current();
  input.back = transfers_.copy_kept(input.on_device, input.on_host);
}

}  // namespace runner
