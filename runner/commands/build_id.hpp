// The id of this build, for records and for comparisons between processes.
#pragma once

namespace runner {

/// "0.1.0-14bf01d84b11": version and commit at the last configure.
const char* build_id();

}  // namespace runner
