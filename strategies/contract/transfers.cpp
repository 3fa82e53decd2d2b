#include "strategies/contract/transfers.hpp"

#include <array>
#include <atomic>

#include "runner/base/error.hpp"

namespace runner {

namespace {

std::atomic<bool>& without_streams(torch::DeviceType type) {
  static std::array<std::atomic<bool>, static_cast<size_t>(torch::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)> types{};
  return types[static_cast<size_t>(type)];
}

/// CPUs have neither streams nor events.
bool has_streams(torch::Device device) { return !device.is_cpu() && !without_streams(device.type()); }

c10::Stream current_stream(torch::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

void set_streams(torch::DeviceType type, bool available) { without_streams(type) = !available; }

StreamMark::StreamMark(c10::Stream stream) {
  event_.emplace(stream.device_type());
  event_->record(stream);
}

StreamMark StreamMark::now(torch::Device device) {
  return has_streams(device) ? StreamMark(current_stream(device)) : StreamMark();
}

void StreamMark::wait_on_host() const {
  if (event_) event_->synchronize();
}

void StreamMark::wait_on_device() const {
  if (event_) event_->block(current_stream(event_->device()));
}

void StreamMark::wait_on(c10::Stream stream) const {
  if (event_) event_->block(stream);
}

namespace {

std::optional<c10::Stream> another_stream(torch::Device device) {
  if (!has_streams(device)) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

}  // namespace

SideStream::SideStream(torch::Device device) : device_(device), stream_(another_stream(device)) {}

SideStream::Scope SideStream::enter() {
  if (stream_) StreamMark::now(device_).wait_on(*stream_);
  return Scope(stream_);
}

Transfers::Transfers(torch::Device device) : device_(device), stream_(another_stream(device)) {}

void Transfers::follow_current() {
  if (stream_) StreamMark::now(device_).wait_on(*stream_);
}

/// record_stream() prevents the device's allocator from reusing the memory of a freed tensor before the copy has ended.
StreamMark Transfers::copy(const torch::Tensor& target, const torch::Tensor& source) {
  auto mark = copy_kept(target, source);
  if (stream_) (source.is_cpu() ? target : source).record_stream(*stream_);
  return mark;
}

StreamMark Transfers::copy_kept(const torch::Tensor& target, const torch::Tensor& source) {
  RUNNER_CHECK(target.scalar_type() == source.scalar_type() && target.numel() == source.numel());
  torch::NoGradGuard no_grad;
  if (!stream_) {
    target.copy_(source);
    return {};
  }
  c10::StreamGuard guard(*stream_);
  target.copy_(source, /*non_blocking=*/true);
  return StreamMark(*stream_);
}

}  // namespace runner
