// LibTorch's tensors and autograd. <torch/torch.h> also brings torch::nn, optim, data and jit, which nobody here uses
// and which make every file that includes it 4 s slower to compile.
#pragma once
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>
