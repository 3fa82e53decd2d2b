// Places where tests kill a run as `kill -9` or a power failure would.
#pragma once
#include <string_view>

namespace runner {

/// Does nothing unless the environment says RUNNER_FAULT=NAME or NAME:N. Then the N-th (default: first) time that this
/// process comes to the place of that name, it kills itself with SIGKILL. A worker kills its supervisor first.
void fault_point(std::string_view name);

}  // namespace runner
