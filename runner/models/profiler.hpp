// Where the memory of a model's blocks is known from. A process with LibTorch records it. Another one asks a worker, which stays until the
// process ends, and keeps the answers in files. Torch-free.
#pragma once
#include <filesystem>
#include <memory>

#include "runner/models/profile_question.hpp"

namespace runner {

std::shared_ptr<const BlockProfiler> make_profiler(ModelSource source);

/// Where this process keeps the answers of workers, and descriptions of plug-ins. Without it they are kept in memory only. `machine`: what
/// the memory depends on here, in any words; answers of other machines in the same folder do not count.
void keep_descriptions(const std::filesystem::path& folder, const std::string& machine);

/// Ends the worker that this process has asked. It starts again with the next question.
void dismiss_profile_worker();

/// Records in this process (record_profiles.hpp).
using RecordProfiles = BlockProfiles (*)(const ModelSource& source, const ProfileQuestion& question);
/// From now on this process does not ask a worker. Returns true.
bool record_in_process(RecordProfiles record);

}  // namespace runner
