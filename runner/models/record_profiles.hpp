// Records the memory of a model's blocks. The CPU computes blocks of a plug-in if an operator has no form without values.
#pragma once
#include "runner/models/profile_question.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

BlockProfiles record_model(Model& model, const Job& job, DType leaf);
BlockProfiles record_profiles(const ModelSource& source, const ProfileQuestion& question);

}  // namespace runner
