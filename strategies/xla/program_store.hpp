// Compiled programs in a folder, by the content of what they were compiled from. Several processes may use the folder at once.
#pragma once
#include <functional>
#include <string>

#include "strategies/pjrt/client.hpp"

namespace runner::xla {

class ProgramStore {
 public:
  /// Without a folder, nothing is stored.
  explicit ProgramStore(std::string folder) : folder_(std::move(folder)) {}

  struct Found {
    pjrt::Executable program;
    bool stored = false;       ///< it was read from the folder
    std::string problem = {};  ///< for the user: why a file of the folder could not be read or written
  };
  /// The program of the folder; else calls `compiles`, compiles it, and stores it if the plug-in can. A stored program that is damaged is
  /// compiled again.
  /// Throws Error(run_failed) as Client::compile().
  Found get(const pjrt::Client& client, const std::string& module, const pjrt::CompileOptions& options,
            const std::function<void()>& compiles) const;

 private:
  std::string folder_;
};

}  // namespace runner::xla
