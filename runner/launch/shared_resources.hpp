// Resources that the supervisor creates before the workers, which inherit the descriptors: the rendezvous socket and the
// shared memory.
#pragma once
#include <cstdint>
#include <string>

#include "runner/base/descriptor.hpp"

namespace runner {

/// A TCP socket that listens on `port`, for rank 0's store. Port 0 means a free port, which is stored in `port`. Other hosts
/// can connect only if `address` is not the loopback address. Throws Error(environment) with the port.
Descriptor listen_on(const std::string& address, int& port);

/// Anonymous memory of `bytes` zeros. The kernel frees it when the last process that has it open ends, also after kill -9.
Descriptor make_shared_memory(int64_t bytes);

}  // namespace runner
