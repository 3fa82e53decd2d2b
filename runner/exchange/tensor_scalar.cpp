#include "runner/exchange/tensor_scalar.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "runner/base/half.hpp"
#include "runner/exchange/protobuf_reader.hpp"

namespace runner {

namespace {

struct NumberType {
  int64_t dtype;  ///< as in types.proto
  size_t bytes;   ///< of a number in tensor_content
  int field;      ///< that has the numbers otherwise
  double (*value)(uint64_t bits);
};

template <typename Number>
double whole(uint64_t bits) {
  return static_cast<double>(static_cast<Number>(bits));
}

constexpr int float_values = 5, double_values = 6;

constexpr NumberType number_types[] = {
    {1, 4, float_values, [](uint64_t bits) -> double { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }},
    {2, 8, double_values, [](uint64_t bits) { return std::bit_cast<double>(bits); }},
    {3, 4, 7, whole<int32_t>},
    {4, 1, 7, whole<uint8_t>},
    {5, 2, 7, whole<int16_t>},
    {6, 1, 7, whole<int8_t>},
    {9, 8, 10, whole<int64_t>},
    {10, 1, 11, whole<bool>},
    {14, 2, 13, [](uint64_t bits) -> double { return bfloat16_to_float(static_cast<uint16_t>(bits)); }},
    {17, 2, 7, whole<uint16_t>},
    {19, 2, 13, [](uint64_t bits) -> double { return half_to_float(static_cast<uint16_t>(bits)); }},
    {22, 4, 16, whole<uint32_t>},
    {23, 8, 17, whole<uint64_t>}};

std::optional<uint64_t> first_bits(std::string_view bytes, size_t size) {
  uint64_t bits = 0;
  if (bytes.size() < size) return std::nullopt;
  std::memcpy(&bits, bytes.data(), size);
  return bits;
}

/// The first number of a repeated field, which is packed into bytes or stands alone.
std::optional<uint64_t> first_bits(const ProtobufField& field, const NumberType& type) {
  if (field.bytes.empty()) return field.whole;
  if (field.number == float_values || field.number == double_values) return first_bits(field.bytes, type.bytes);
  constexpr char varint_of_field_1 = 1 << 3;
  const std::string message = varint_of_field_1 + std::string(field.bytes);
  ProtobufField first;
  return ProtobufReader(message).next(first) ? std::optional(first.whole) : std::nullopt;
}

}  // namespace

std::optional<double> scalar_in_tensor(std::string_view tensor) {
  constexpr int dtype_field = 1, tensor_content = 4;
  int64_t dtype = number_types[0].dtype;
  ProtobufField field;
  for (ProtobufReader reader(tensor); reader.next(field);)
    if (field.number == dtype_field) dtype = field.integer();
  const auto* type = std::ranges::find(number_types, dtype, &NumberType::dtype);
  if (type == std::end(number_types)) return std::nullopt;
  std::optional<uint64_t> bits;
  for (ProtobufReader reader(tensor); reader.next(field) && !bits;) {
    if (field.number == tensor_content) bits = first_bits(field.bytes, type->bytes);
    if (field.number == type->field) bits = first_bits(field, *type);
  }
  return bits ? std::optional(type->value(*bits)) : std::nullopt;
}

}  // namespace runner
