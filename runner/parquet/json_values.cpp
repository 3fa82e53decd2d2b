#include "runner/parquet/json_values.hpp"

#include <arrow/array.h>
#include <arrow/scalar.h>
#include <arrow/type.h>
#include <arrow/type_traits.h>
#include <arrow/util/float16.h>
#include <arrow/util/utf8.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "runner/base/error.hpp"
#include "runner/base/limits.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

using Json = nlohmann::ordered_json;

Json text_or_bytes(std::string_view bytes) {
  static const bool ready = (arrow::util::InitializeUTF8(), true);  // Arrow validates only after this call
  static_cast<void>(ready);
  if (arrow::util::ValidateUTF8(bytes)) return std::string(bytes);
  return Json::binary({});
}

template <typename Array>
Json list_of(const Array& list, int64_t row, JsonBytes& bytes) {
  Json items = Json::array();
  for (int64_t i = list.value_offset(row); i < list.value_offset(row) + list.value_length(row); ++i)
    items.push_back(json_of(*list.values(), i, bytes));
  return items;
}

Json object_of(const arrow::StructArray& values, int64_t row, JsonBytes& bytes) {
  Json object = Json::object();
  for (int f = 0; f < values.num_fields(); ++f)
    if (auto value = json_of(*values.field(f), row, bytes); !value.is_null()) {
      const auto& name = values.type()->field(f)->name();
      bytes.add(name.size());
      object[name] = std::move(value);
    }
  return object;
}

/// An object if the keys are texts, otherwise a list of pairs.
Json map_of(const arrow::MapArray& map, int64_t row, JsonBytes& bytes) {
  const bool named = map.keys()->type_id() == arrow::Type::STRING || map.keys()->type_id() == arrow::Type::LARGE_STRING;
  Json entries = named ? Json::object() : Json::array();
  for (int64_t i = map.value_offset(row); i < map.value_offset(row) + map.value_length(row); ++i) {
    auto value = json_of(*map.items(), i, bytes);
    if (!named)
      entries.push_back({json_of(*map.keys(), i, bytes), std::move(value)});
    else if (const auto key = json_of(*map.keys(), i, bytes); !key.is_string())
      throw usage_error("a key of a map is not UTF-8");
    else if (!value.is_null())
      entries[key.get<std::string>()] = std::move(value);
  }
  return entries;
}

template <typename Type>
Json number_of(const arrow::Array& array, int64_t row) {
  return static_cast<const typename arrow::TypeTraits<Type>::ArrayType&>(array).Value(row);
}

template <typename Array>
Json bytes_of(const arrow::Array& array, int64_t row, JsonBytes& bytes) {
  const auto view = static_cast<const Array&>(array).GetView(row);
  bytes.add(view.size());
  return text_or_bytes(view);
}

Json dictionary_value(const arrow::DictionaryArray& array, int64_t row, JsonBytes& bytes) {
  const auto& values = *array.dictionary();
  const auto index = array.GetValueIndex(row);
  if (index < 0 || index >= values.length())
    throw usage_error("the file is damaged: value {} of a dictionary of {}", index, values.length());
  return json_of(values, index, bytes);
}

Json as_text(const arrow::Array& array, int64_t row) {
  const auto scalar = array.GetScalar(row);
  return scalar.ok() ? Json((*scalar)->ToString()) : Json();
}

/// The shortest decimal number that rounds to `number` in its own type: 0.1 of a float is 0.1, not 0.10000000149011612. A whole number
/// stays as it is.
double shortest(float number) {
  constexpr float whole_most = 9007199254740992;  // 2^53
  if (std::abs(number) < whole_most && number == std::trunc(number)) return number;
  return std::strtod(fmt::format("{}", number).c_str(), nullptr);
}
double shortest(arrow::util::Float16 half) {
  const float number = half.ToFloat();
  for (int digits = 1; digits <= 5 && number != std::trunc(number); ++digits)
    if (const float rounded = std::strtof(fmt::format("{:.{}e}", number, digits - 1).c_str(), nullptr);
        arrow::util::Float16::FromFloat(rounded).bits() == half.bits())
      return shortest(rounded);
  return shortest(number);
}

/// The seconds of a duration, whatever its unit is.
Json seconds_of(const arrow::Array& array, int64_t row) {
  constexpr int64_t units[] = {1, 1000, 1000000, 1000000000};  // in the order of arrow::TimeUnit
  const auto unit = units[static_cast<const arrow::DurationType&>(*array.type()).unit()];
  const auto count = static_cast<const arrow::DurationArray&>(array).Value(row);
  if (count % unit == 0) return count / unit;
  return static_cast<double>(count) / static_cast<double>(unit);
}

/// A time, without zeros at the end of its fraction, whose number depends on the unit.
Json time_of(const arrow::Array& array, int64_t row) {
  auto text = as_text(array, row);
  if (!text.is_string()) return text;
  auto& digits = text.get_ref<std::string&>();
  const auto point = digits.find('.');
  if (point == std::string::npos) return text;
  const auto end = std::min(digits.find_first_not_of("0123456789", point + 1), digits.size());
  const auto kept = digits.find_last_not_of('0', end - 1);
  const auto begin = kept == point ? point : kept + 1;
  digits.erase(begin, end - begin);
  return text;
}

/// A whole number of more than 64 bits stays a text, which has all its digits.
Json decimal_of(const arrow::Array& array, int64_t row) {
  auto text = as_text(array, row);
  if (!text.is_string()) return text;
  const auto& digits = text.get_ref<const std::string&>();
  auto number = Json::parse(digits, nullptr, /*allow_exceptions=*/false);
  const bool whole = digits.find_first_not_of("-0123456789") == std::string::npos;
  return number.is_number_integer() || (number.is_number() && !whole) ? number : text;
}

}  // namespace

Json json_of(const arrow::Array& array, int64_t row, JsonBytes& bytes) {
  using T = arrow::Type;
  bytes.add(sizeof(Json));
  if (array.IsNull(row)) return nullptr;
  switch (array.type_id()) {
    case T::BOOL:
      return number_of<arrow::BooleanType>(array, row);
    case T::INT8:
      return number_of<arrow::Int8Type>(array, row);
    case T::INT16:
      return number_of<arrow::Int16Type>(array, row);
    case T::INT32:
      return number_of<arrow::Int32Type>(array, row);
    case T::INT64:
      return number_of<arrow::Int64Type>(array, row);
    case T::UINT8:
      return number_of<arrow::UInt8Type>(array, row);
    case T::UINT16:
      return number_of<arrow::UInt16Type>(array, row);
    case T::UINT32:
      return number_of<arrow::UInt32Type>(array, row);
    case T::UINT64:
      return number_of<arrow::UInt64Type>(array, row);
    case T::DURATION:
      return seconds_of(array, row);
    case T::TIMESTAMP:
    case T::TIME32:
    case T::TIME64:
      return time_of(array, row);
    case T::HALF_FLOAT:
      return shortest(arrow::util::Float16::FromBits(static_cast<const arrow::HalfFloatArray&>(array).Value(row)));
    case T::FLOAT:
      return shortest(static_cast<const arrow::FloatArray&>(array).Value(row));
    case T::DOUBLE:
      return number_of<arrow::DoubleType>(array, row);
    case T::STRING:
    case T::BINARY:
      return bytes_of<arrow::BinaryArray>(array, row, bytes);
    case T::LARGE_STRING:
    case T::LARGE_BINARY:
      return bytes_of<arrow::LargeBinaryArray>(array, row, bytes);
    case T::LIST:
      return list_of(static_cast<const arrow::ListArray&>(array), row, bytes);
    case T::LARGE_LIST:
      return list_of(static_cast<const arrow::LargeListArray&>(array), row, bytes);
    case T::FIXED_SIZE_LIST:
      return list_of(static_cast<const arrow::FixedSizeListArray&>(array), row, bytes);
    case T::MAP:
      return map_of(static_cast<const arrow::MapArray&>(array), row, bytes);
    case T::STRUCT:
      return object_of(static_cast<const arrow::StructArray&>(array), row, bytes);
    case T::DICTIONARY:
      return dictionary_value(static_cast<const arrow::DictionaryArray&>(array), row, bytes);
    case T::NA:
      return nullptr;
    default:
      return arrow::is_decimal(array.type_id()) ? decimal_of(array, row) : as_text(array, row);
  }
}

void JsonBytes::add(size_t bytes) {
  const auto more = static_cast<int64_t>(bytes);
  row_ += more;
  group_ += more;
  if (row_ > parquet_row_bytes_max)
    throw usage_error("a row has more than {}, which is the most that is allowed", format_bytes(parquet_row_bytes_max));
  if (group_ > parquet_group_bytes_max)
    throw usage_error("the rows of a row group have more than {}, which is the most that is allowed",
                      format_bytes(parquet_group_bytes_max));
}

}  // namespace runner
