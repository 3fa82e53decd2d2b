// An array on a device.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "strategies/pjrt/array_type.hpp"
#include "strategies/pjrt/plugin.hpp"

struct PJRT_Buffer;

namespace runner::pjrt {

/// Dense, in row-major order. Moved, not copied.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Plugin& plugin, PJRT_Buffer* handle) : plugin_(&plugin), handle_(handle) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();

  PJRT_Buffer* handle() const { return handle_; }
  Shape shape() const;
  /// Throws Error(run_failed) for a type that this program does not use.
  ElementType type() const;
  /// Waits until the array is computed, and copies it. `out` must have its size; Error(run_failed) if the computation failed.
  void read(std::span<std::byte> out) const;
  /// Whether a program has taken the memory for an output (donation). Then it cannot be read.
  bool donated() const;

 private:
  void swap(Buffer& other) noexcept {
    std::swap(plugin_, other.plugin_);
    std::swap(handle_, other.handle_);
  }
  const Plugin* plugin_ = nullptr;
  PJRT_Buffer* handle_ = nullptr;
};

}  // namespace runner::pjrt
