// The build that this program is: what records and comparisons of builds use.
#pragma once

namespace runner {

/// "0.1.0-14bf01d84b11": version and commit, as of the last configure.
const char* build_id();

}  // namespace runner
