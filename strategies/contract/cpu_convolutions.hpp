// The temporary memory of LibTorch's convolutions on a CPU. This header is torch-free.
//
// oneDNN computes convolutions with copies of images and weights in blocked layouts. Its kernels without AVX-512 do not compute the
// gradient of a weight whose kernel is larger than the image: a general one does, whose scratch memory is several times the weight.
// Where oneDNN has no kernel for the dtype, LibTorch copies all patches of the images to the columns of a matrix.
// Source: LibTorch 2.11, aten/src/ATen/native/Convolution.cpp (use_mkldnn) and ConvolutionMM2d.cpp; oneDNN 3.10.2,
// x64/jit_avx2_conv_kernel_f32.cpp (jit_avx2_conv_bwd_weights_kernel_f32_t::init_conf) and cpu/gemm_convolution_utils.cpp.
#pragma once
#include "strategies/contract/cpu_products.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

/// Bytes of temporary tensors for a micro-batch of `rows` images: of a convolution, of the gradient of its input, and of the gradient of
/// its weight.
struct ConvolutionBytes {
  int64_t forward = 0, input_gradient = 0, weight_gradient = 0;
};

ConvolutionBytes convolution_bytes(const CpuProducts& products, DType dtype, const ConvolutionSpec& convolution,
                                   int64_t rows);

}  // namespace runner
