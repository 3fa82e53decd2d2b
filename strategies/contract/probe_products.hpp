// Measures how LibTorch computes 16-bit matrix products on this machine.
#pragma once
#include "strategies/contract/cpu_products.hpp"

namespace runner {

/// Multiplies two small matrices of each 16-bit dtype and measures the scratch memory that is allocated. Takes about 0.5 ms,
/// mostly to create the kernel of the first product. `threads` is LibTorch's thread count in the calling thread. Installs the
/// counting allocator.
CpuProducts probe_cpu_products();

}  // namespace runner
