// Tensor memory on CPU, counted exactly: what torch.cuda.max_memory_allocated tells on a GPU.
#pragma once
#include <cstdint>

namespace runner {

/// Replaces LibTorch's CPU allocator by one that counts (64-byte aligned, a header of one line in front). Once, before any tensor.
void install_counting_allocator();
int64_t current_tensor_bytes();
int64_t peak_tensor_bytes();
/// The peak starts again from what is in use now.
void reset_peak_tensor_bytes();
/// VmHWM of this process: the peak of its resident memory.
int64_t peak_resident_bytes();

/// Makes glibc keep freed blocks instead of giving them back to the system: a training step frees and takes the same sizes again, and
/// each return costs page faults. Call before threads start.
void tune_malloc();

}  // namespace runner
