// The state tensors that an optimizer keeps for a parameter: names, shapes and bytes. Torch-free.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace runner {

/// Elements of a parameter that share one scale, if an optimizer keeps states in 8 bits.
constexpr int64_t state_block = 256;

struct OptimizerState {
  std::string name;  ///< in checkpoints: optimizer/NAME/PARAMETER
  /// The part of a parameter for which the state has one value.
  enum class Extent { element, block, row, column };
  Extent extent = Extent::element;
  enum class Type { master, float32, code };  ///< the dtype of the masters, float32, or 8-bit codes
  Type type = Type::master;
  bool starts_as_parameter = false;  ///< the first value is the parameter's; otherwise 0

  /// Whether ranks that have any part of the parameter have the whole state.
  bool whole() const { return extent == Extent::row || extent == Extent::column; }
  /// Shape of the state of a parameter with this shape.
  std::vector<int64_t> shape(const std::vector<int64_t>& parameter) const {
    if (extent == Extent::row) return {parameter.front()};
    if (extent == Extent::column) return {parameter.back()};
    if (extent == Extent::element) return parameter;
    int64_t elements = 1;
    for (int64_t size : parameter) elements *= size;
    return {(elements + state_block - 1) / state_block};
  }
  /// Values for `count` elements of the parameter. If there is a scale for each block, the first of them begins a block.
  int64_t values(int64_t count, const std::vector<int64_t>& parameter) const {
    if (extent == Extent::element) return count;
    return extent == Extent::block ? (count + state_block - 1) / state_block : shape(parameter).front();
  }
  int64_t bytes_each(int64_t master_bytes) const {
    return type == Type::master ? master_bytes : type == Type::float32 ? 4 : 1;
  }
};

}  // namespace runner
