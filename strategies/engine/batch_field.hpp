// The fields of a batch: name, element type and shape of each. A model declares the fields that it needs, and a
// data set those that it provides.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace runner {

enum class ElementType { int64, int32, uint8, boolean, float32 };

int64_t bytes_of(ElementType type);
/// "int64".
std::string name_of(ElementType type);
std::vector<ElementType> element_types();
/// The reverse of name_of(). Throws std::logic_error for another name.
ElementType element_type_named(const std::string& name);

/// The ElementType of a C++ type.
template <typename Element>
constexpr ElementType element_type() = delete;
template <>
constexpr ElementType element_type<int64_t>() {
  return ElementType::int64;
}
template <>
constexpr ElementType element_type<int32_t>() {
  return ElementType::int32;
}
template <>
constexpr ElementType element_type<uint8_t>() {
  return ElementType::uint8;
}
template <>
constexpr ElementType element_type<bool>() {
  return ElementType::boolean;
}
template <>
constexpr ElementType element_type<float>() {
  return ElementType::float32;
}

struct BatchField {
  std::string name;  ///< unique in the batch
  ElementType type = ElementType::int64;
  std::vector<int64_t> row = {};  ///< shape of one row; the largest one if batches may have smaller rows
  /// Every element of a row that stands for no sample, and the shape of that row; empty: `row`. A rank without samples runs
  /// such a row, so that it calls every collective of the step. The loss of that row must be 0.
  double padding = 0;
  std::vector<int64_t> padding_row = {};

  int64_t row_elements() const;
  int64_t row_bytes() const { return row_elements() * bytes_of(type); }
};

/// "`inputs` (int64 [128]), `targets` (int64 [128])"
std::string describe(const std::vector<BatchField>& fields);

/// The fields of `needed` that `provided` does not contain with the same type and shape.
std::vector<BatchField> missing_fields(const std::vector<BatchField>& needed, const std::vector<BatchField>& provided);

}  // namespace runner
