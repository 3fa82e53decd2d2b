// Reads and writes what a tensor with strides sees of a flat array, as operations of a program. Torch-free.
#pragma once
#include "strategies/pjrt/module_text.hpp"

namespace runner::xla {

/// The elements of a tensor in a flat array: element (i, j, ...) is at offset + i * strides[0] + j * strides[1] + ...
struct Strided {
  pjrt::Shape sizes, strides;
  int64_t offset = 0;
};

/// The tensor's elements. `array` has any shape, of which the row-major order counts. Throws Error(run_failed) if dimensions overlap
/// in another way than by a stride of 0.
pjrt::Value read(pjrt::ModuleText& text, const pjrt::Value& array, const Strided& tensor);

/// The array with other elements where the tensor has its own. Throws Error(run_failed) if elements of the tensor overlap.
pjrt::Value written(pjrt::ModuleText& text, const pjrt::Value& array, const Strided& tensor,
                    const pjrt::Value& elements);

}  // namespace runner::xla
