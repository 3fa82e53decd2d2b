// fp32 matrix products on CPUs where LibTorch's choice, MKL, is slow.
//
// MKL uses AVX-512 only on Intel's CPUs. On an AMD EPYC with AVX-512 (Zen 5), oneDNN computes products of LLM layers at 200 to 225
// GFLOP/s on one core, and MKL at 95 to 103. LibTorch contains both, but computes fp32 products with MKL.
#pragma once

namespace runner {

/// Whether oneDNN has these products on this CPU: with AVX-512, unless ONEDNN_MAX_CPU_ISA forbids that. LibTorch refuses them otherwise.
bool has_onednn_float32();

/// Lets oneDNN compute the products (mm, addmm, linear) of fp32 matrices in host memory in this process, from then on. Small products,
/// other dtypes, and matrices that are neither row-major nor transposed are computed as before. Results of equal products have equal
/// bits. A product may need scratch memory: up to 64 columns of the second matrix and 256 rows of the first, of at most 1024 elements,
/// for each thread. May be called again. Needs has_onednn_float32().
void use_onednn_for_float32();

/// Calls it if oneDNN is faster on this CPU: if it has these products, and AMD made it. Returns whether.
bool choose_float32_products();

}  // namespace runner
