// Work on a stream of its own beside a device's computation, and copies between a device and host memory there.
#pragma once
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

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

/// A stream beside the one that the calling thread computes in. On CPU there is none: everything runs where it is
/// called.
class SideStream {
 public:
  explicit SideStream(torch::Device device);

  /// While it lives, the calling thread's current stream is the side stream.
  class Scope {
   public:
    explicit Scope(const std::optional<c10::Stream>& stream) {
      if (stream) guard_.reset_stream(*stream);
    }

   private:
    c10::OptionalStreamGuard guard_;
  };
  /// What is entered in the scope begins after what the calling thread has entered into its current stream so far.
  Scope enter();
  /// What has been entered so far.
  StreamMark now() const { return stream_ ? StreamMark(*stream_) : StreamMark(); }

 private:
  torch::Device device_;
  std::optional<c10::Stream> stream_;
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
  /// The same where the caller keeps both tensors until its current stream has waited for the mark. Then the device's
  /// memory is free at that point of the stream, without the allocator asking whether the copy has ended.
  StreamMark copy_kept(const torch::Tensor& target, const torch::Tensor& source);

 private:
  torch::Device device_;
  std::optional<c10::Stream> stream_;  ///< none on CPU
};

}  // namespace runner
