// Variables of the environment with which Horovod is set up, as notes: a recipe is the whole description of a run, so none of them is read.
#pragma once
#include <string>
#include <vector>

namespace runner {

/// A note for each HOROVOD_ variable that is set and has a key in recipes, or nothing to set here. Those of a launcher
/// (HOROVOD_RANK, ...) are read by runner/launch.
std::vector<std::string> notes_of_horovod_variables();

}  // namespace runner
