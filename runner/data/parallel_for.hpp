// Independent pieces of work on all cores.
#pragma once
#include <cstddef>
#include <functional>

namespace runner {

/// Calls `work` with 0 ... count-1, each once, in rising order on each of as many threads as this machine has cores. After an
/// exception no further piece begins; of several exceptions, the one of the smallest number is thrown.
/// `threads`: 0: one for each core.
void parallel_for(size_t count, const std::function<void(size_t)>& work, size_t threads = 0);

}  // namespace runner
