// What the supervisor makes before the workers and hands to them by descriptor: the rendezvous socket and the shared
// memory.
#pragma once
#include <cstdint>
#include <string>

#include "runner/base/descriptor.hpp"

namespace runner {

/// A TCP socket listening on `port` (0 = a free one, written back), for rank 0's store. Open to other hosts only when
/// `address` is not this host's loopback. Throws Error(environment) naming the port.
Descriptor listen_on(const std::string& address, int& port);

/// Anonymous memory of `bytes` zeros that lives as long as a process holds it: nothing stays behind after kill -9.
Descriptor make_shared_memory(int64_t bytes);

}  // namespace runner
