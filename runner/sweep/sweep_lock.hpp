// Locks that keep the processes of a sweep apart, on all machines that share its folder.
#pragma once
#include <cstdint>
#include <string>

#include "runner/base/descriptor.hpp"

namespace runner::sweep {

/// Locks of the file `lock` in the sweep's folder. The kernel releases them when the process ends, however it ends. They need a
/// filesystem with locks of byte ranges, as the ledger does.
class SweepLock {
 public:
  /// For a process that runs the whole sweep. `folder`: the sweep's. Throws Error(usage) if another process works on the sweep,
  /// and Error(environment) if the file cannot be locked.
  static SweepLock whole(const std::string& folder);
  /// For a process that trains one trial, while others may train others. Throws Error(usage) if another process runs the whole
  /// sweep or trains this trial.
  static SweepLock trial(const std::string& folder, int64_t number);
  /// Whether another process runs the whole sweep at this moment.
  static bool is_held_whole(const std::string& folder);

 private:
  explicit SweepLock(const std::string& folder);
  /// Returns false if another process has the lock.
  bool lock(short kind, int64_t byte) const;

  std::string file_;
  Descriptor descriptor_;
};

}  // namespace runner::sweep
