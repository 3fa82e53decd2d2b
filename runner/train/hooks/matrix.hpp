// A lua::Matrix over tensors, with autograd: the logits and targets of a hook's `loss`.
#pragma once

#include "runner/lua/matrix.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner {

/// `tensor` is 2-d. Operations run in the grad mode of their caller.
lua::Matrix::Pointer make_matrix(torch::Tensor tensor);
/// The tensor of a matrix that was made here.
const torch::Tensor& tensor_of(const lua::Matrix& matrix);

}  // namespace runner
