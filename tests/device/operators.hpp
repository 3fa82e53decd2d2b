// Every operator without a kernel of its own: the CPU's kernel, entered as a task into the current stream.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

namespace runner::simulated {

/// A boxed kernel for any operator. The task runs the CPU's kernel over the device's bytes, so results have the CPU's
/// bits. Operators whose results' shapes depend on data, or whose results are no tensors, make the host wait, as they
/// do on CUDA.
void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace runner::simulated
