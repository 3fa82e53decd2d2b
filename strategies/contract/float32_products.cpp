#include "strategies/contract/float32_products.hpp"

#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "runner/base/text.hpp"
#include "strategies/collective/libtorch.hpp"

namespace at::native {
// LibTorch exports this function, but ships no header with it. Source: LibTorch 2.11, aten/src/ATen/native/mkldnn/Matmul.h.
void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta, float alpha);
}  // namespace at::native

namespace runner {

namespace {

using at::Scalar;
using torch::Tensor;

/// A row-major matrix or the transposed view of one; rows may be apart.
bool is_plain(const Tensor& matrix) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  return (matrix.stride(1) == 1 && matrix.stride(0) >= columns) || (matrix.stride(0) == 1 && matrix.stride(1) >= rows);
}

bool is_float32(const Tensor& matrix) {
  return matrix.dim() == 2 && matrix.scalar_type() == torch::kFloat32 && matrix.layout() == torch::kStrided;
}

/// oneDNN is faster from about 128^3 on, on a Zen 5. The limit is higher, because its scratch memory is not predicted: where models have
/// such products, it is below 1 % of their memory.
bool is_large(int64_t rows, int64_t columns, int64_t inner) {
  constexpr int64_t least_side = 16, least_size = 256 * 256 * 256;
  return std::min({rows, columns, inner}) >= least_side && rows * columns >= least_size / inner;
}

bool suits(const Tensor& a, const Tensor& b) {
  return is_float32(a) && is_float32(b) && a.size(1) == b.size(0) && is_large(a.size(0), b.size(1), a.size(1)) &&
         is_plain(a) && is_plain(b);
}

/// Whether `out` can be overwritten with the product. LibTorch's own kernels resize it if its shape is another.
bool holds_product(const Tensor& out, const Tensor& a, const Tensor& b) {
  return is_float32(out) && out.size(0) == a.size(0) && out.size(1) == b.size(1) && out.is_contiguous();
}

Tensor new_product(const Tensor& a, const Tensor& b) { return at::empty({a.size(0), b.size(1)}, a.options()); }

/// out = alpha a b, or out += alpha a b.
void multiply(const Tensor& a, const Tensor& b, const Tensor& out, bool adds = false, double alpha = 1) {
  at::native::mkldnn_matmul(a, b, out, adds ? 1.0f : 0.0f, static_cast<float>(alpha));
}

Tensor& mm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  if (!suits(a, b) || !holds_product(out, a, b)) return at::cpu::mm_out(out, a, b);
  multiply(a, b, out);
  return out;
}

Tensor mm(const Tensor& a, const Tensor& b) {
  if (!suits(a, b)) return at::cpu::mm(a, b);
  auto out = new_product(a, b);
  multiply(a, b, out);
  return out;
}

/// With a factor of 0, values that are not finite have no effect. Such sums are left to LibTorch.
bool suits(const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  return beta.toDouble() != 0 && alpha.toDouble() != 0 && suits(a, b);
}

void add_product(Tensor& out, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  if (beta.toDouble() != 1) out.mul_(beta);
  multiply(a, b, out, /*adds=*/true, alpha.toDouble());
}

Tensor& addmm_(Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  if (!suits(a, b, beta, alpha) || !holds_product(self, a, b)) return at::cpu::addmm_(self, a, b, beta, alpha);
  add_product(self, a, b, beta, alpha);
  return self;
}

/// `self` may have fewer dimensions than the product, e.g. a bias.
Tensor addmm(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  if (self.scalar_type() != torch::kFloat32 || !suits(a, b, beta, alpha) ||
      !at::is_expandable_to(self.sizes(), {a.size(0), b.size(1)}))
    return at::cpu::addmm(self, a, b, beta, alpha);
  auto out = new_product(a, b);
  out.copy_(self);
  add_product(out, a, b, beta, alpha);
  return out;
}

bool forbids_avx512(const std::string& limit) {
  const auto name = lower(limit);
  return name == "sse41" || name.starts_with("avx2") || name == "avx";
}

}  // namespace

void use_onednn_for_float32() {
  static const auto kernels = [] {
    // The dispatcher warns when a kernel is replaced.
    struct Silent : c10::WarningHandler {
      void process(const c10::Warning&) override {}
    } silent;
    const c10::WarningUtils::WarningHandlerGuard guard(&silent);
    auto library =
        std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    library->impl("mm", TORCH_FN(mm));
    library->impl("mm.out", TORCH_FN(mm_out));
    library->impl("addmm", TORCH_FN(addmm));
    library->impl("addmm_", TORCH_FN(addmm_));
    return library;
  }();
  (void)kernels;
}

bool has_onednn_float32() {
  // oneDNN reads either variable.
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"})
    if (const char* limit = std::getenv(name); limit && forbids_avx512(limit)) return false;
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool choose_float32_products() {
  if (!has_onednn_float32() || !__builtin_cpu_is("amd")) return false;
  use_onednn_for_float32();
  return true;
}

}  // namespace runner
