#include "strategies/contract/probe_products.hpp"

#include "strategies/collective/libtorch.hpp"

#include "strategies/collective/counting_allocator.hpp"
#include "strategies/contract/float32_products.hpp"

namespace runner {

namespace {

ProductScratch probe(torch::ScalarType type, DType dtype) {
  constexpr int64_t side = 64;
  torch::NoGradGuard no_grad;
  MemoryAccount account;
  AccountScope scope(account);
  int64_t taken = 0;
  {
    auto a = torch::ones({side, side}, type), b = torch::ones({side, side}, type), out = torch::empty_like(a);
    account.reset_peak();
    at::mm_out(out, a, b);
    taken = account.peak() - account.current();
  }
  CpuProducts copies{.bfloat16 = ProductScratch::result, .float16 = ProductScratch::result};
  if (taken == 0) return ProductScratch::none;
  return taken == scratch_bytes(copies, dtype, {side, side, side}) ? ProductScratch::result : ProductScratch::blocks;
}

}  // namespace

CpuProducts probe_cpu_products() {
  return {.bfloat16 = probe(torch::kBFloat16, DType::bfloat16),
          .float16 = probe(torch::kFloat16, DType::float16),
          .threads = at::get_num_threads(),
          .avx512 = has_onednn_float32()};
}

}  // namespace runner
