// The devices of a plug-in, as the ranks of a training use them. A rank is a thread of this process and has one device. All devices run a
// program at the same time: each rank gives its arguments, and the first one starts the program for all.
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "strategies/collective/world.hpp"
#include "strategies/pjrt/client.hpp"
#include "strategies/xla/program_store.hpp"

namespace runner::xla {

struct DeviceOptions {
  std::string platform = {};  ///< that the plug-in must have ("tpu"); empty: any
  std::string plugin;         ///< path of the PJRT plug-in; empty: the one for CPUs that scripts/setup installs
  std::string store;          ///< folder of compiled programs; empty: none
  bool reports = false;       ///< tells about each program, not only about those that take long to compile
  std::function<void(const std::string&)> note = {};  ///< tells the user something; may be empty
};

class Devices {
 public:
  /// Opens the plug-in, for programs on `ranks` devices. Throws as open().
  Devices(const DeviceOptions& options, int ranks);

  /// Collective over the ranks of the world, which must be threads of this process. Throws Error(environment) if the
  /// plug-in cannot be used, has another platform, or has too few devices.
  static std::shared_ptr<Devices> open(World& world, const DeviceOptions& options);

  const pjrt::Client& client() const { return client_; }

  /// Collective. Runs the program called `name`. `write` gives its text, and is called on the first rank when the program is needed for the
  /// first time. Returns this rank's results. The program may take the memory of arguments. An exception of the first rank is thrown on
  /// all ranks.
  std::vector<pjrt::Buffer> run(World& world, const std::string& name, const std::function<std::string()>& write,
                                const std::vector<const pjrt::Buffer*>& arguments);

  /// The memory of the program called `name`, which is compiled if that was not done before, and not run. Not collective.
  pjrt::ProgramMemory memory_of(const std::string& name, const std::function<std::string()>& write);

 private:
  const ProgramStore::Found& program(const std::string& name, const std::function<std::string()>& write);
  void execute(const std::string& name, const std::function<std::string()>& write);
  void tell(const std::string& name, const pjrt::Executable& program, bool stored, double seconds) const;

  DeviceOptions options_;
  int ranks_;
  pjrt::Client client_;
  ProgramStore store_;
  std::map<std::string, ProgramStore::Found> programs_;

  // The first rank reads the arguments of the others, so these stay in run() until it has ended, however long it compiles.
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;                                          ///< ranks that have given their arguments
  int64_t ended_ = 0;                                        ///< programs that have run
  std::exception_ptr failure_;                               ///< of the last one
  std::vector<std::vector<const pjrt::Buffer*>> arguments_;  ///< of each rank
  std::vector<std::vector<pjrt::Buffer>> results_;
};

}  // namespace runner::xla
