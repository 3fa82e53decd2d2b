// What LibTorch's products of 16-bit matrices take on a CPU beside their operands and their result.
//
// LibTorch gives such products to oneDNN where the CPU has kernels for them, and oneDNN asks for scratch memory for the
// time of one product. How much depends on the instruction set that oneDNN uses: the CPU's, or a lower one that
// ONEDNN_MAX_CPU_ISA (DNNL_MAX_CPU_ISA) names. Products in fp32 and fp64 take none. Torch-free.
// Source: LibTorch 2.11, aten/src/ATen/native/mkldnn/Matmul.cpp (mkldnn_gemm); oneDNN 3.10.2, gemm_bf16_matmul.cpp and
// x64/matmul/brgemm_matmul_utils.cpp (init_brgemm_matmul_conf, compute_blocking_heuristic_avx512, init_scratchpad).
#pragma once
#include <cstdint>
#include <string>

#include "strategies/contract/precision.hpp"

namespace runner {

enum class ProductScratch {
  none,    ///< LibTorch's own loops, without oneDNN
  result,  ///< a copy of the whole result in fp32
  blocks,  ///< for each thread a block of each factor and of the result
};

/// How a rank's CPU computes products.
struct CpuProducts {
  ProductScratch bfloat16 = ProductScratch::none, float16 = ProductScratch::none;
  int threads = 1;
};

/// With oneDNN's effective instruction set, as ONEDNN_MAX_CPU_ISA names it in lower case ("avx512_core_bf16"); none for
/// a name that is not known. Sets all but the threads.
CpuProducts cpu_products(const std::string& onednn_isa);

/// The product of a [rows, inner] and an [inner, columns] matrix.
struct ProductShape {
  int64_t rows = 0, columns = 0, inner = 0;
  bool transposed = false;  ///< the first is a transposed view, as in a weight's gradient
};

/// Bytes that exist while the product is computed, as LibTorch 2.11 takes them.
int64_t scratch_bytes(const CpuProducts& products, DType dtype, const ProductShape& shape);

}  // namespace runner
