// The devices of a plug-in, and what is made on them: arrays and compiled programs.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strategies/pjrt/executable.hpp"

struct PJRT_Client;
struct PJRT_Device;

namespace runner::pjrt {

// The options of a compilation, as the bytes of XLA's CompileOptionsProto.

/// How a program is compiled. Its devices are the first ones of the client.
struct CompileOptions {
  /// Copies of the program, one on each device, which can have different arguments and exchange values in collectives.
  int replicas = 1;
  /// XLA's flags for this program: "xla_cpu_use_xnnpack". A plug-in refuses names that it does not know.
  std::map<std::string, bool> flags = {};
  /// Numbers that the plug-in gave the devices, of at least as many as there are replicas. The client fills them in; empty: 0, 1, ...
  std::vector<int64_t> devices = {};
};

/// The message in protocol buffers' wire format.
std::string to_bytes(const CompileOptions& options);

struct ClientOptions {
  std::optional<int> cpu_devices = {};  ///< devices that the plug-in for CPUs offers; leave unset for other plug-ins
};

/// The use of the host's memory by an array that is made of it.
enum class HostMemory : uint8_t {
  copied,  ///< it may change at once
  /// Where the device can read it, the array is that memory. It must be 64-byte aligned, and stay as it is until the array is freed and
  /// every execution that uses it has ended.
  borrowed,
};

/// It must outlive the arrays, programs and executions that it has made.
class Client {
 public:
  /// Throws Error(environment) if the plug-in finds no device.
  explicit Client(std::shared_ptr<const Plugin> plugin, const ClientOptions& options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  int devices() const { return static_cast<int>(devices_.size()); }
  std::string platform() const;  ///< "cpu", "cuda", "tpu"
  /// Changes with the plug-in's library, the version of its platform, and the kind of devices. A plug-in may crash when it reads a program
  /// that was made by another plug-in or for other devices.
  std::string identity() const;

  /// Compiles a module in StableHLO's text. Throws Error(run_failed) with the line of the module, where XLA names it.
  Executable compile(const std::string& module, const CompileOptions& options) const;
  /// A program from Executable::serialized(). Throws Error(run_failed) if it is of another plug-in or damaged.
  Executable load(const std::string& serialized, const CompileOptions& options) const;

  /// An array of dense data in row-major order, which must have its size. Throws Error(run_failed) if the device cannot make it, for
  /// example because its memory is full.
  Buffer upload(std::span<const std::byte> data, ElementType type, const Shape& shape, int device,
                HostMemory memory = HostMemory::copied) const;

 private:
  void close();
  void check_replicas(const CompileOptions& options) const;
  /// With the numbers of the devices.
  CompileOptions completed(CompileOptions options) const;

  std::shared_ptr<const Plugin> plugin_;
  PJRT_Client* handle_ = nullptr;
  std::vector<PJRT_Device*> devices_;
};

}  // namespace runner::pjrt
