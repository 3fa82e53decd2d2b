// Copies between devices and the host, as CUDA orders them.
#pragma once
#include "tests/device/view.hpp"

namespace runner::simulated {

/// Enters target.copy_(source) into the calling thread's current stream of `device`.
void enter_copy(Lock& lock, int device, const View& target, const View& source, const char* what);

}  // namespace runner::simulated
