#include "runner/commands/build_id.hpp"

namespace runner {

const char* build_id() { return RUNNER_BUILD_ID; }

}  // namespace runner
