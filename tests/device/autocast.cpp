// Autocast on the simulated device: the lists of operators that LibTorch's autocast has for CUDA.
//
// Left out is what CUDA does beyond its lists: cuDNN's convolutions, and the refusal of binary_cross_entropy.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

using at::DimnameList;
using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define IN_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(IN_LOWER_PRECISION)
#define IN_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(IN_FP32)
#define WITH_FP32_RESULT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(WITH_FP32_RESULT)
#define WITH_FP32_ARGUMENT(...) KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE(__VA_ARGS__)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(WITH_FP32_ARGUMENT)
#define IN_WIDEST_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(IN_WIDEST_DTYPE)
}
