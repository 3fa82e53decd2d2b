// Traces a function of LibTorch tensors, compiles what it computes with XLA's plug-in for CPUs, and runs the program.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "strategies/collective/libtorch.hpp"

namespace runner::testing {

using Tensors = std::vector<torch::Tensor>;
using TensorFunction = std::function<Tensors(const Tensors&)>;

/// ForwardContext::dropout_key and first_row of the step that is traced.
constexpr int64_t step_dropout_key = 0x123456789abcdef, step_first_row = 5;

struct TracedResult {
  Tensors outputs;                ///< in host memory
  std::set<std::string> lowered;  ///< names of the lowerings that were used
};

/// What `function` computes of the inputs, which are in host memory. It is called with tensors without values of the same types and
/// shapes, which require gradients as the inputs do.
TracedResult run_traced(const TensorFunction& function, const Tensors& inputs);

/// The program that run_traced() compiles.
std::string traced_text(const TensorFunction& function, const Tensors& inputs);

/// A function that returns the results of another one, and then the gradients of its inputs that have any. The gradients of its results are
/// numbers that differ from element to element. Results that need no gradient have none.
TensorFunction with_gradients(TensorFunction function);

}  // namespace runner::testing
