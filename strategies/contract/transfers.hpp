// Side streams of a device, and copies between device and host memory on such a stream. They overlap with computation.
#pragma once
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <optional>

#include "strategies/collective/libtorch.hpp"

namespace runner {

/// Whether devices of this type have streams and events. Without a call, all but CPUs have them. A worker calls it when it opens a plug-in,
/// before a rank computes.
void set_streams(torch::DeviceType type, bool available);

/// A point in the work of a stream. Without streams it has always been reached.
class StreamMark {
 public:
  StreamMark() = default;
  explicit StreamMark(c10::Stream stream);
  /// The point after all work that was queued on the current stream of `device` in the calling thread.
  static StreamMark now(torch::Device device);

  /// Blocks the host until the stream has reached this point. Then the host can access memory that earlier work used.
  void wait_on_host() const;
  /// Makes later work on the calling thread's current stream wait for this point. Does not block the host.
  void wait_on_device() const;
  void wait_on(c10::Stream stream) const;

 private:
  std::optional<c10::Event> event_;
};

/// A stream that is not the computation's. On devices without streams work runs synchronously.
class SideStream {
 public:
  explicit SideStream(torch::Device device);

  /// While a Scope exists, the side stream is the calling thread's current stream.
  class Scope {
   public:
    explicit Scope(const std::optional<c10::Stream>& stream) {
      if (stream) guard_.reset_stream(*stream);
    }

   private:
    c10::OptionalStreamGuard guard_;
  };
  /// Makes the side stream wait for all work queued on the calling thread's current stream so far.
  Scope enter();
  /// The point after all work queued on the side stream so far.
  StreamMark now() const { return stream_ ? StreamMark(*stream_) : StreamMark(); }

 private:
  torch::Device device_;
  std::optional<c10::Stream> stream_;
};

/// Copies on a side stream. Used by one thread at a time. Both tensors have the same dtype. Host memory should be pinned; copies
/// of other memory block the host. Without streams copies are synchronous.
class Transfers {
 public:
  explicit Transfers(torch::Device device);

  /// Makes later copies wait for all work queued on the calling thread's current stream so far, such as the kernels that compute
  /// the values to copy.
  void follow_current();
  /// target.copy_(source). Returns the point at which the copy has ended. Until then the caller must not access the tensor in
  /// host memory. The tensor on the device may be freed at once.
  StreamMark copy(const torch::Tensor& target, const torch::Tensor& source);
  /// Copies as copy(), but the caller keeps both tensors until its current stream has waited for the returned point. So the copy need not
  /// be registered with the device's allocator (record_stream), and the memory can be reused as soon as the stream has reached
  /// the point.
  StreamMark copy_kept(const torch::Tensor& target, const torch::Tensor& source);

 private:
  torch::Device device_;
  std::optional<c10::Stream> stream_;  ///< none on devices without streams
};

}  // namespace runner
