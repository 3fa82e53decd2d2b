#include "strategies/contract/host_checkpoints.hpp"

#include <utility>

namespace runner {

std::shared_ptr<HostCheckpoints::Input> HostCheckpoints::keep(const torch::Tensor& x) {
  auto input = std::make_shared<Input>(x.detach());
  input->on_host_ = torch::empty(x.sizes(), x.options().device(torch::kCPU).pinned_memory(pinned_));
  transfers_.follow_current();
  input->left_ = transfers_.copy_kept(input->on_host_, input->on_device_);
  if (auto before = latest_.lock()) {
    before->left_.wait_on_device();
    before->on_device_.reset();
  }
  input->before_ = std::exchange(latest_, input);
  return input;
}

torch::Tensor HostCheckpoints::take(Input& input) {
  bring_back(input);
  input.left_.wait_on_device();
  input.back_.wait_on_device();
  if (auto before = input.before_.lock()) bring_back(*before);
  input.on_host_.reset();
  return std::exchange(input.on_device_, {});
}

/// The new tensor on the device may reuse memory that earlier work on the current stream still uses, so the copy waits for that
/// work.
void HostCheckpoints::bring_back(Input& input) {
  if (input.on_device_.defined()) return;
  input.on_device_ =
      torch::empty(input.on_host_.sizes(), input.on_host_.options().device(device_).pinned_memory(false));
  transfers_.follow_current();
  input.back_ = transfers_.copy_kept(input.on_device_, input.on_host_);
}

}  // namespace runner
