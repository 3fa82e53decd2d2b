// The devices of a plug-in, as the ranks of a training use them. A rank is a thread of this process and has one device. All devices run a
// program at the same time: each rank gives its arguments, and the first one starts the program for all.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strategies/collective/world.hpp"
#include "strategies/pjrt/client.hpp"
#include "strategies/xla/program_store.hpp"

namespace runner::xla {

struct DeviceOptions {
  std::string plugin;    ///< path of the PJRT plug-in; empty: the one for CPUs that scripts/setup installs
  std::string store;     ///< folder of compiled programs; empty: none
  bool reports = false;  ///< tells about each program, not only about those that take long to compile
  std::function<void(const std::string&)> note = {};  ///< tells the user something; may be empty
};

class Devices {
 public:
  /// Collective over the ranks of the world, which must be threads of this process. Throws Error(environment) if the plug-in cannot be used,
  /// or has too few devices.
  static std::shared_ptr<Devices> open(World& world, const DeviceOptions& options);

  const pjrt::Client& client() const { return client_; }

  /// Collective. Runs the program called `name`. `write` gives its text, and is called on the first rank when the program is needed for the
  /// first time. Returns this rank's results. The program may take the memory of arguments.
  std::vector<pjrt::Buffer> run(World& world, const std::string& name, const std::function<std::string()>& write,
                                const std::vector<const pjrt::Buffer*>& arguments);

  /// By the compiler's account, on each device: of the programs so far, the one that needs most.
  const pjrt::ProgramMemory& memory() const { return memory_; }

 private:
  Devices(const DeviceOptions& options, int ranks);
  const pjrt::Executable& program(const std::string& name, const std::function<std::string()>& write);
  void tell(const std::string& name, const pjrt::Executable& program, bool stored, double seconds) const;

  DeviceOptions options_;
  int ranks_;
  pjrt::Client client_;
  ProgramStore store_;
  std::map<std::string, pjrt::Executable> programs_;
  pjrt::ProgramMemory memory_;
  std::vector<std::vector<const pjrt::Buffer*>> arguments_;  ///< of each rank, while a program is started
  std::vector<std::vector<pjrt::Buffer>> results_;
};

/// The path of the plug-in for CPUs. Empty: this program was built without it.
std::string cpu_plugin();

}  // namespace runner::xla
