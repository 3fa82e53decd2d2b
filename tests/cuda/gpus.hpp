// Whether the CUDA module loads and finds a GPU.
#pragma once
#include <optional>
#include <string>

namespace runner::testing {

/// The error of loading the module; nullopt if it loads.
std::optional<std::string> module_problem();

/// Number of CUDA devices. Skips the test, with the reason, if there is none.
int gpus_or_skip();

}  // namespace runner::testing
