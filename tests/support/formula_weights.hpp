// Weights of tiny checkpoints from a formula of the tensor's name in Hugging Face's files. tests/models/make_family_reference.py has the
// same formula, so values of transformers can be compared without files of weights.
#pragma once
#include "runner/models/models.hpp"
#include "tests/support/hashed_weights.hpp"

namespace runner::testing {

/// Element `index` of a tensor in the checkpoint.
inline float formula_value(const std::string& name, int64_t index, bool matrix, bool gemma) {
  uint32_t key = 0x811c9dc5;  // FNV-1a
  for (unsigned char byte : name) key = (key ^ byte) * 0x01000193;
  const double unit = hash32(static_cast<uint32_t>(index) + hash32(key)) / 4294967296.0 - 0.5;
  if (matrix) return static_cast<float>(unit * 0.4);
  return static_cast<float>(unit * 0.5 + (name.ends_with("weight") && !gemma ? 1.0 : 0.0));
}

/// The elements of a parameter in runner's layout.
inline std::vector<float> formula_values(const ParameterSpec& parameter, const HfTensor& tensor, bool gemma) {
  const bool matrix = parameter.shape.size() == 2;
  const int64_t columns = matrix ? parameter.shape[1] : 1;
  std::vector<float> values;
  for (int64_t row = 0; row < parameter.shape[0]; ++row) {
    int64_t stored = row;
    if (const auto& rows = tensor.rows) stored = rows->first + row / rows->count * rows->stride + row % rows->count;
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t index = tensor.transposed ? column * parameter.shape[0] + row : stored * columns + column;
      values.push_back(formula_value(tensor.name, index, matrix, gemma));
    }
  }
  return values;
}

}  // namespace runner::testing
