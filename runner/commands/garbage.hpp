// Checkpoints that no rule keeps, which `runner gc` removes.
#pragma once
#include <cstdint>
#include <string>

#include "runner/base/files.hpp"

namespace runner {

/// A checkpoint that the rule does not keep, or a folder that a killed process has left among the checkpoints.
struct SurplusCheckpoint {
  std::string run;
  fs::path path;
  int64_t bytes = 0;
  bool published = true;
};

struct RemovedCheckpoint {
  bool removed = false;      ///< if not, and nothing uses it: another process has removed it
  std::string used_by = {};  ///< what uses it
};

/// Removes it unless something uses it now (remove_unused_checkpoint()). If the checkpoint is a link, only the link is removed, and a note
/// says where the files are.
RemovedCheckpoint remove_surplus(const std::string& home, const SurplusCheckpoint& checkpoint);

}  // namespace runner
