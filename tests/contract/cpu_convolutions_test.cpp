// Temporary memory of convolutions on a CPU. The bytes were measured with LibTorch, except those for AVX-512 with several threads.
#include <catch2/catch_test_macros.hpp>

#include "strategies/contract/cpu_convolutions.hpp"

using namespace runner;

namespace {

ConvolutionSpec convolution(int64_t channels, int64_t kernel, int64_t size) {
  return {.in = channels, .out = channels, .kernel = kernel, .size_in = size, .size_out = size};
}

}  // namespace

TEST_CASE("without AVX-512, the gradient of a weight that is larger than the image needs several times the weight") {
  const auto small = convolution(32, 3, 2);
  const CpuProducts avx2 = cpu_products("avx2"), avx512 = cpu_products("avx512_core");
  CHECK(convolution_bytes(avx2, DType::float32, small, 12).weight_gradient == 152'320);
  CHECK(convolution_bytes(avx512, DType::float32, small, 12).weight_gradient == 36'864);  // one copy
  CpuProducts threads = avx2;
  threads.threads = 2;
  CHECK(convolution_bytes(threads, DType::float32, small, 12).weight_gradient == 304'384);
  for (const auto& products : {avx2, avx512})
    CHECK(convolution_bytes(products, DType::float32, convolution(32, 3, 4), 12).weight_gradient == 49'152);
}

TEST_CASE("convolutions in dtypes without kernels copy the patches of all images") {
  const auto shape = convolution(16, 3, 4);
  const int64_t elements = 12 * 16 * 3 * 3 * 4 * 4;
  for (const char* isa : {"avx2", "avx512_core", "avx512_core_bf16"})
    CHECK(convolution_bytes(cpu_products(isa), DType::float64, shape, 12).forward == 8 * elements);
  CHECK(convolution_bytes(cpu_products("avx2"), DType::bfloat16, shape, 12).forward == 2 * elements);
  CHECK(convolution_bytes(cpu_products("avx512_core"), DType::bfloat16, shape, 12).forward < 2 * elements);
  CHECK(convolution_bytes(cpu_products("avx512_core"), DType::float16, shape, 12).forward == 2 * elements);
}
