// The scratch memory of LibTorch's 16-bit matrix products on a CPU. This header is torch-free.
// LibTorch uses oneDNN for these products if oneDNN has kernels for the CPU. oneDNN allocates scratch memory for the duration of
// one product. Its size depends on the instruction set that oneDNN uses: the CPU's, or a lower one set by ONEDNN_MAX_CPU_ISA
// (DNNL_MAX_CPU_ISA). Products in fp64 need none. Scratch memory of fp32 products is not predicted: MKL needs none, and that of oneDNN is
// below 1 % of a step's memory (float32_products.cpp).
// Source: LibTorch 2.11, aten/src/ATen/native/mkldnn/Matmul.cpp (mkldnn_gemm); oneDNN 3.10.2, gemm_bf16_matmul.cpp and
// x64/matmul/brgemm_matmul_utils.cpp (init_brgemm_matmul_conf, compute_blocking_heuristic_avx512, init_scratchpad).
#pragma once
#include <cstdint>
#include <string>

#include "strategies/contract/precision.hpp"

namespace runner {

enum class ProductScratch {
  none,    ///< no scratch memory: LibTorch's loops, without oneDNN
  result,  ///< a copy of the result in fp32
  blocks,  ///< for each thread, a block of each factor and of the result
};

/// What decides the scratch memory of products and convolutions on the CPU of a rank.
struct CpuProducts {
  ProductScratch bfloat16 = ProductScratch::none, float16 = ProductScratch::none;
  int threads = 1;
  bool avx512 = false;  ///< oneDNN uses AVX-512
};

/// For oneDNN's effective instruction set, named as in ONEDNN_MAX_CPU_ISA but in lower case ("avx512_core_bf16"). Unknown names
/// give ProductScratch::none. `threads` is not set.
CpuProducts cpu_products(const std::string& onednn_isa);

/// The product of a [rows, inner] and an [inner, columns] matrix.
struct ProductShape {
  int64_t rows = 0, columns = 0, inner = 0;
  bool transposed = false;  ///< the first factor is a transposed view, as for a weight's gradient
};

/// Scratch bytes during the product, for LibTorch 2.11.
int64_t scratch_bytes(const CpuProducts& products, DType dtype, const ProductShape& shape);

}  // namespace runner
