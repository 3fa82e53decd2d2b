// Whether an address is this machine's own.
#pragma once
#include <string>

namespace runner {

/// Whether `host` is 127.0.0.0/8, ::1 or localhost. Other names are not resolved.
bool is_loopback(const std::string& host);

}  // namespace runner
