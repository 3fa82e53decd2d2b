// Whether the disk of a run's folder has space for its checkpoints.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "runner/base/files.hpp"
#include "runner/selection/plan.hpp"

namespace runner {

/// Compares the size of the checkpoints that a run keeps with `free_bytes` on its disk. `existing`: number of checkpoints
/// already written. Throws Error(environment) if there is no space for another one. Returns a note if space is short, or "".
std::string disk_space_note(const Plan& plan, int64_t free_bytes, int64_t existing);
/// The free bytes on the filesystem of `folder`, which may not exist yet; empty if unknown.
std::optional<int64_t> free_bytes(fs::path folder);

}  // namespace runner
