// The checks of a node before it runs what the leader's run folder names, if no secret says who the leader is.
#pragma once
#include <sys/types.h>

#include <functional>
#include <string>

#include "runner/base/files.hpp"
#include "runner/launch/worker_group.hpp"

namespace runner {

/// Throws Error if the folder of a run names code that this node's own recipe does not name. The recipe is known to the caller of follow().
using RunFolderCheck = std::function<void(const fs::path& run_dir)>;

/// The folder of the run whose workers are to start: the one that has their logs. Throws BadMessage if they are told to read another one.
fs::path run_folder_of(const WorkerGroup& group);

/// Why user `me` runs nothing that a path without links says: it, or a folder that it is in, belongs to another user, who is not root, or
/// every user can write to it. "" if there is no reason. A group that may write a folder is trusted. What is missing must be in a folder
/// that others cannot write to.
std::string why_untrusted(const fs::path& path, uid_t me);

/// Checks the group's run folder and cache, which has compiled programs, and then calls `check`, if there is one. Gives the workers the
/// paths without links that were checked: others cannot replace them later. Throws Error(environment).
void require_trusted_folders(WorkerGroup& group, const RunFolderCheck& check);

}  // namespace runner
