// Temporary memory of 16-bit matrix products on a CPU, compared with measurements of LibTorch. Each line of blocks was
// measured with its number of threads. The lines of avx512_core_fp16 and of AMX were derived from the source only.
#include <catch2/catch_test_macros.hpp>

#include "strategies/contract/cpu_products.hpp"

using namespace runner;

namespace {

int64_t taken(const char* isa, int threads, const ProductShape& shape, DType dtype = DType::bfloat16) {
  CpuProducts products = cpu_products(isa);
  products.threads = threads;
  return scratch_bytes(products, dtype, shape);
}

}  // namespace

TEST_CASE("products need an fp32 copy of the result where the CPU has AVX-512 without bf16") {
  for (const char* isa : {"avx512_core", "avx512_core_vnni"}) {
    CHECK(taken(isa, 1, {64, 64, 64}) == 16'512);
    CHECK(taken(isa, 1, {256, 256, 64}) == 262'272);
    CHECK(taken(isa, 2, {4096, 3072, 768}) == 50'331'776);
    CHECK(taken(isa, 1, {4096, 11008, 2048, true}) == 180'355'200);
  }
}

TEST_CASE("products need blocks of bounded size for each thread where the CPU has bf16") {
  struct Row {
    int threads;
    ProductShape shape;
    int64_t bytes;
  };
  const Row rows[] = {
      {1, {64, 64, 64}, 25'600},          {1, {256, 64, 192}, 91'136},        {1, {256, 192, 64}, 74'752},
      {1, {192, 64, 256, true}, 181'376}, {1, {64, 192, 256, true}, 83'072},  {1, {64, 256, 256, true}, 83'072},
      {1, {503, 128, 96, true}, 126'336}, {1, {32, 128, 96, true}, 27'776},   {1, {256, 256, 64}, 74'752},
      {1, {64, 128, 512}, 82'944},        {1, {128, 512, 64, true}, 58'496},  {1, {512, 512, 512}, 132'096},
      {1, {512, 512, 512, true}, 410'752}, {3, {16, 128, 64}, 39'168},        {3, {48, 128, 40, true}, 45'440},
      {4, {16, 128, 512}, 281'472},       {4, {96, 192, 16, true}, 50'176},
  };
  for (const Row& row : rows) {
    CAPTURE(row.threads, row.shape.rows, row.shape.columns, row.shape.inner);
    CHECK(taken("avx512_core_bf16", row.threads, row.shape) == row.bytes);
  }
  for (int threads : {1, 8, 64}) {
    int64_t most = taken("avx512_core_bf16", threads, {16384, 16384, 16384, true});
    CHECK(most > 0);
    CHECK(most <= threads * (int64_t{7} << 18));
  }
}

TEST_CASE("products need no memory without kernels for them, in wide dtypes, and if they are tiny") {
  CHECK(taken("", 1, {256, 256, 256}) == 0);
  CHECK(taken("avx2", 1, {256, 256, 256}) == 0);
  for (DType dtype : {DType::float32, DType::float64})
    CHECK(taken("avx512_core_bf16", 1, {256, 256, 256}, dtype) == 0);
  CHECK(taken("avx512_core", 1, {256, 256, 256}, DType::float16) == 0);
  CHECK(taken("avx512_core_bf16", 1, {256, 256, 256}, DType::float16) == 0);
  CHECK(taken("avx512_core_fp16", 1, {256, 256, 256}, DType::float16) > 0);
  CHECK(taken("avx512_core", 1, {16, 16, 16}) == 0);
  CHECK(taken("avx512_core", 1, {16, 16, 17}) > 0);
}
