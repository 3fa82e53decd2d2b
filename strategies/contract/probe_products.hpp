// Asks LibTorch which way it computes 16-bit products on this machine.
#pragma once
#include "strategies/contract/cpu_products.hpp"

namespace runner {

/// Multiplies two small matrices of each dtype and looks at what the allocator is asked for: about 0.5 ms, for the first
/// product's kernel. The threads are those of the calling thread. Installs the counting allocator.
CpuProducts probe_cpu_products();

}  // namespace runner
