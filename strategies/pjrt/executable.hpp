// A compiled program, and its execution on its devices.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strategies/pjrt/array_type.hpp"
#include "strategies/pjrt/plugin.hpp"

struct PJRT_LoadedExecutable;
struct PJRT_Executable;

struct PJRT_Buffer;

namespace runner::pjrt {

/// An array on a device.
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

/// Bytes on each device, by XLA's own account.
struct ProgramMemory {
  int64_t arguments = 0, outputs = 0;
  int64_t aliased = 0;  ///< of the outputs, those that are in donated arguments
  int64_t temporary = 0;
  int64_t bytes() const { return arguments + outputs - aliased + temporary; }  ///< while the program runs
};

/// The results of an execution. Its arrays may be used at once by other executions; reading one waits for it.
class Execution {
 public:
  Execution(const Plugin& plugin, std::vector<std::vector<Buffer>> outputs, std::vector<PJRT_Event*> ends)
      : outputs(std::move(outputs)), plugin_(&plugin), ends_(std::move(ends)) {}
  Execution(Execution&&) = default;
  Execution& operator=(Execution&&) = delete;
  /// Waits until all devices are done.
  ~Execution();
  /// Waits until all devices are done. Throws Error(run_failed) with the device and XLA's message.
  void wait();

  std::vector<std::vector<Buffer>> outputs;  ///< [replica][output]

 private:
  const Plugin* plugin_;
  std::vector<PJRT_Event*> ends_;
};

class Executable {
 public:
  Executable(const Plugin& plugin, PJRT_LoadedExecutable* loaded, int replicas);
  Executable(Executable&& other) noexcept;
  Executable& operator=(Executable&&) = delete;
  ~Executable();

  /// Throws Error(run_failed) if the plug-in does not report it.
  ProgramMemory memory() const;
  /// Starts the program. arguments[replica][i]; the program may take the memory of arguments that it declares as donated. Throws
  /// Error(run_failed) if XLA refuses an argument.
  Execution execute(const std::vector<std::vector<const Buffer*>>& arguments) const;
  /// The compiled program, for Client::load() of the same plug-in. Throws Error(run_failed) if the plug-in cannot.
  std::string serialized() const;

 private:
  void describe();
  void close();

  const Plugin* plugin_;
  PJRT_LoadedExecutable* loaded_;
  PJRT_Executable* program_ = nullptr;
  int replicas_;
  size_t outputs_ = 0;
};

}  // namespace runner::pjrt
