#include "strategies/contract/cpu_convolutions.hpp"

#include <algorithm>

namespace runner {

namespace {

enum class Kernel {
  columns,  ///< LibTorch's own
  blocked,  ///< oneDNN's, with blocked layouts
  general,  ///< oneDNN's for weights that no other kernel supports
};

bool has_blocked(const CpuProducts& products, DType dtype) {
  switch (dtype) {
    case DType::float32:
      return true;
    case DType::bfloat16:
      return products.bfloat16 != ProductScratch::none;
    case DType::float16:
      return products.float16 != ProductScratch::none;
    default:
      return false;
  }
}

Kernel kernel_of(const CpuProducts& products, DType dtype, const ConvolutionSpec& convolution, int64_t rows) {
  constexpr int64_t many_rows = 16, many_values = 20480;
  if (!has_blocked(products, dtype)) return Kernel::columns;
  if (dtype == DType::float32) {
    const bool simple = convolution.kernel == 1 && convolution.stride == 1;
    const bool small = convolution.kernel <= 3 && rows == 1 &&
                       convolution.in * convolution.size_in * convolution.size_in <= many_values;
    if (small || (simple && rows < many_rows && products.threads == 1)) return Kernel::columns;
  }
  return dtype == DType::float32 && !products.avx512 && convolution.kernel > convolution.size_in ? Kernel::general
                                                                                                 : Kernel::blocked;
}

/// A column for each place of the result, with the values that it is computed from.
int64_t column_elements(const ConvolutionSpec& convolution) {
  if (convolution.kernel == 1 && convolution.stride == 1) return 0;
  return convolution.in * convolution.kernel * convolution.kernel * convolution.size_out * convolution.size_out;
}

/// For each thread: the columns of an image, and four times the bytes of the weight.
int64_t general_bytes(int threads, const ConvolutionSpec& convolution) {
  constexpr int64_t alignment = 128;
  return 4 * threads * (4 * convolution.weight_elements() + column_elements(convolution)) + 2 * alignment;
}

}  // namespace

ConvolutionBytes convolution_bytes(const CpuProducts& products, DType dtype, const ConvolutionSpec& convolution,
                                   int64_t rows) {
  const auto kernel = kernel_of(products, dtype, convolution, rows);
  const int64_t element = bytes_of(dtype);
  constexpr int64_t page = 4096;
  if (kernel == Kernel::columns) {
    const int64_t columns = element * rows * column_elements(convolution);
    return {columns, columns, columns};
  }
  const auto values = [](int64_t channels, int64_t size) { return channels * size * size; };
  const int64_t images = element * rows *
                         (values(convolution.in, convolution.size_in) + values(convolution.out, convolution.size_out)),
                weight = element * convolution.weight_elements();
  ConvolutionBytes bytes{.forward = images + weight, .input_gradient = images + weight, .weight_gradient = images};
  // The gradient of the input of a convolution with a stride is computed by a kernel that has 1024 descriptors for each thread.
  if (convolution.stride > 1) bytes.input_gradient += products.threads * int64_t{24} * 1024 + 3 * page;
  bytes.weight_gradient = kernel == Kernel::general ? general_bytes(products.threads, convolution)
                                                    : std::max(images, weight);  // at the end, a copy of the weight
  return bytes;
}

}  // namespace runner
