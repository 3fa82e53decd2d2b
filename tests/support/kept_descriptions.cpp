// Tests of programs without LibTorch ask a worker about the memory of blocks. They share its answers.
#include "runner/models/profiler.hpp"

namespace {

[[maybe_unused]] const bool kept = (runner::keep_descriptions(RUNNER_BINARY_DIR "/tests", ""), true);

}  // namespace
