// Copies between a device and host memory, on a stream of their own beside the device's computation.
#pragma once
#include <c10/core/Event.h>
#include <optional>

#include "strategies/collective/libtorch.hpp"

namespace runner {

/// A moment in a stream's work. On CPU every moment has passed.
class StreamMark {
 public:
  StreamMark() = default;
  explicit StreamMark(c10::Stream stream);
  /// What the calling thread has entered into its current stream of `device` so far.
  static StreamMark now(torch::Device device);

  /// Returns when the moment has passed: then the host may read and write what the stream's work until then used.
  void wait_on_host() const;
  /// What the calling thread enters into its current stream from now on begins after the moment.
  void wait_on_device() const;
  void wait_on(c10::Stream stream) const;

 private:
  std::optional<c10::Event> event_;
};

/// Used by one thread at a time. Both tensors are of one dtype. Host memory should be pinned: other memory is copied
/// while copy() waits. On CPU a copy is over when copy() returns.
class Transfers {
 public:
  explicit Transfers(torch::Device device);

  /// Copies from now on begin after what the calling thread has entered into its current stream so far: what wrote the
  /// values they read on the device.
  void follow_current();
  /// target.copy_(source); the mark is its end. Until then the caller leaves the host's tensor alone; the device's
  /// may be freed at once.
  StreamMark copy(const torch::Tensor& target, const torch::Tensor& source);

 private:
  torch::Device device_;
  std::optional<c10::Stream> stream_;  ///< none on CPU
};

}  // namespace runner
