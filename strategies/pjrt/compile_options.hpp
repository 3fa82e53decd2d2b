// The options of a compilation, as the bytes of XLA's CompileOptionsProto.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace runner::pjrt {

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

}  // namespace runner::pjrt
