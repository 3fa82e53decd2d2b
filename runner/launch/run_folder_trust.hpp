// What a node checks before it runs what the leader's run folder names, if no secret says who the leader is.
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

/// Why user `me` runs nothing that a folder or its resolved.toml says: another user has written it, who is not root. "" if there is no reason.
std::string why_untrusted(const fs::path& run_dir, uid_t me);

/// Checks the owner of the group's run folder, and then calls `check`, if there is one. Throws Error(environment) that names both users.
void require_trusted_folder(const WorkerGroup& group, const RunFolderCheck& check);

}  // namespace runner
