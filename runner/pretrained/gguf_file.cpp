// Reads GGUF files strictly: every length is compared with the bytes that are left before it is used.
#include "runner/pretrained/gguf_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/limits.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

using nlohmann::json;

constexpr std::string_view magic = "GGUF";
constexpr int dimensions_max = 4;
constexpr uint64_t name_bytes_max = 65535;

enum class ValueType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// The least number of bytes that a value takes in the file.
uint64_t least_bytes(ValueType type) {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::boolean:
      return 1;
    case ValueType::u16:
    case ValueType::i16:
      return 2;
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::f32:
      return 4;
    case ValueType::array:
      return 12;
    default:
      return 8;
  }
}

/// The bytes of the file, read one value after another.
class GgufCursor {
 public:
  explicit GgufCursor(const MappedFile& file) : file_(file) {}

  [[noreturn]] void refuse(uint64_t place, const std::string& fault) const {
    throw usage_error("{}: byte {}: {}", file_.path().string(), place, fault);
  }
  uint64_t place() const { return place_; }
  uint64_t left() const { return file_.bytes().size() - place_; }

  template <typename Number>
  Number number(const char* what) {
    const auto bytes = take(sizeof(Number), what);
    Number value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  std::string string(const std::string& what, uint64_t most = UINT64_MAX) {
    const auto begin = place_;
    const auto length = number<uint64_t>("the length of a text");
    if (length > std::min(left(), most))
      refuse(begin, fmt::format("{} has {} bytes, and {}", what, length,
                                length > left() ? fmt::format("{} are left in the file", left())
                                                : fmt::format("at most {} are allowed", most)));
    const auto bytes = take(length, what.c_str());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::string name(const char* what) {
    const auto begin = place_;
    auto text = string(what, name_bytes_max);
    if (first_invalid_utf8(text)) refuse(begin, fmt::format("{} is not UTF-8", what));
    return text;
  }

  ValueType value_type() {
    const auto begin = place_;
    const auto type = number<uint32_t>("the type of a value");
    if (type > static_cast<uint32_t>(ValueType::f64))
      refuse(begin, fmt::format("a value has the unknown type {}", type));
    return static_cast<ValueType>(type);
  }

  json value(ValueType type, const std::string& key, int depth = 0) {
    const char* what = "a value";
    switch (type) {
      case ValueType::u8:
        return number<uint8_t>(what);
      case ValueType::i8:
        return number<int8_t>(what);
      case ValueType::u16:
        return number<uint16_t>(what);
      case ValueType::i16:
        return number<int16_t>(what);
      case ValueType::u32:
        return number<uint32_t>(what);
      case ValueType::i32:
        return number<int32_t>(what);
      case ValueType::u64:
        return number<uint64_t>(what);
      case ValueType::i64:
        return number<int64_t>(what);
      case ValueType::f32:
        return decimal(number<float>(what));
      case ValueType::f64:
        return number<double>(what);
      case ValueType::boolean:
        return number<uint8_t>(what) != 0;
      case ValueType::string:
        return string(fmt::format("`{}`", shortened_text(key)), gguf_metadata_bytes_max);
      default:
        return list(key, depth);
    }
  }

 private:
  std::span<const std::byte> take(uint64_t count, const char* what) {
    if (count > left()) refuse(place_, fmt::format("the file ends in {}: it is truncated", what));
    const auto bytes = file_.bytes().subspan(place_, count);
    place_ += count;
    return bytes;
  }

  static double decimal(float value) {
    return std::isfinite(value) ? std::stod(fmt::format("{}", value)) : static_cast<double>(value);
  }

  json list(const std::string& key, int depth) {
    const auto begin = place_;
    if (depth >= gguf_nesting_max)
      refuse(begin, fmt::format("`{}` has more than {} lists inside each other", shortened_text(key), depth));
    const auto type = value_type();
    const auto count = number<uint64_t>("the length of a list");
    if (count > left() / least_bytes(type))
      refuse(begin, fmt::format("`{}` has {} elements, and {} bytes are left in the file", shortened_text(key), count,
                                left()));
    if (count > elements_left_)
      refuse(begin,
             fmt::format("the lists up to `{}` have more than {} elements", shortened_text(key), gguf_elements_max));
    elements_left_ -= count;
    json values = json::array();
    values.get_ref<json::array_t&>().reserve(count);
    for (uint64_t i = 0; i < count; ++i) values.push_back(value(type, key, depth + 1));
    return values;
  }

  const MappedFile& file_;
  uint64_t place_ = 0, elements_left_ = gguf_elements_max;
};

/// Returns the numbers of tensors and of metadata.
std::pair<uint64_t, uint64_t> read_header(GgufCursor& cursor) {
  const auto start = cursor.number<uint32_t>("its first bytes");
  if (std::memcmp(&start, magic.data(), magic.size()) != 0) cursor.refuse(0, "this is not a GGUF file");
  const auto version = cursor.number<uint32_t>("the version");
  if (version != 0 && (version & 0xffff) == 0) cursor.refuse(4, "the file is big endian; only little endian is read");
  if (version != 2 && version != 3)
    cursor.refuse(4, fmt::format("version {} of the format is not supported; allowed: 2 or 3", version));
  const auto tensors = cursor.number<uint64_t>("the number of tensors");
  const auto values = cursor.number<uint64_t>("the number of metadata");
  constexpr uint64_t least_tensor = 8 + 4 + 8 + 4 + 8, least_value = 8 + 4 + 1;
  if (tensors > cursor.left() / least_tensor)
    cursor.refuse(8, fmt::format("{} tensors cannot be in {} bytes", tensors, cursor.left()));
  if (values > cursor.left() / least_value)
    cursor.refuse(16, fmt::format("{} metadata cannot be in {} bytes", values, cursor.left()));
  return {tensors, values};
}

/// `begin` is relative to the data section.
GgufTensor read_tensor(GgufCursor& cursor) {
  GgufTensor tensor;
  const auto start = cursor.place();
  tensor.name = cursor.name("the name of a tensor");
  const auto refuse = [&](const std::string& fault) {
    cursor.refuse(start, fmt::format("`{}` {}", shortened_text(tensor.name), fault));
  };
  const auto dimensions = cursor.number<uint32_t>("the description of a tensor");
  if (dimensions > dimensions_max)
    refuse(fmt::format("has {} dimensions; at most {} are allowed", dimensions, dimensions_max));
  int64_t numel = 1;
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto size = cursor.number<uint64_t>("the description of a tensor");
    if (size > INT64_MAX || __builtin_mul_overflow(numel, static_cast<int64_t>(size), &numel))
      refuse("has more elements than 64 bits can count");
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  const auto type = cursor.number<uint32_t>("the description of a tensor");
  tensor.type = find_gguf_type(type);
  if (!tensor.type) refuse(fmt::format("has the unknown type {}", type));
  const auto block = tensor.type->block_elements;
  const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row % block != 0)
    refuse(fmt::format("has rows of {} elements, which are not blocks of {} ({})", row, block, tensor.type->name));
  int64_t bytes = 0;
  if (__builtin_mul_overflow(numel / block, tensor.type->block_bytes, &bytes))
    refuse("has more bytes than 64 bits can count");
  tensor.begin = cursor.number<uint64_t>("the description of a tensor");
  if (__builtin_add_overflow(tensor.begin, static_cast<uint64_t>(bytes), &tensor.end)) refuse("ends beyond 64 bits");
  return tensor;
}

uint64_t alignment_of(const json& metadata, const GgufCursor& cursor) {
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) return 32;
  if (!found->is_number_unsigned() || *found == 0 || *found > (1 << 30))
    cursor.refuse(cursor.place(),
                  fmt::format("general.alignment = {} is not a usable alignment", shortened_json(*found)));
  return found->get<uint64_t>();
}

}  // namespace

GgufFile::GgufFile(const fs::path& path) : file_(path) {
  GgufCursor cursor(file_);
  const auto [tensor_count, value_count] = read_header(cursor);
  for (uint64_t i = 0; i < value_count; ++i) {
    const auto start = cursor.place();
    const auto key = cursor.name("the name of a value");
    if (metadata_.contains(key)) cursor.refuse(start, fmt::format("`{}` occurs twice", shortened_text(key)));
    metadata_[key] = cursor.value(cursor.value_type(), key);
    if (cursor.place() > gguf_metadata_bytes_max)
      cursor.refuse(start, fmt::format("the metadata have more than {} bytes", gguf_metadata_bytes_max));
  }
  std::set<std::string> names;
  for (uint64_t i = 0; i < tensor_count; ++i) {
    const auto start = cursor.place();
    tensors_.push_back(read_tensor(cursor));
    if (!names.insert(tensors_.back().name).second)
      cursor.refuse(start, fmt::format("`{}` occurs twice", shortened_text(tensors_.back().name)));
  }
  const auto alignment = alignment_of(metadata_, cursor);
  const uint64_t size = file_.bytes().size();
  const uint64_t data = (cursor.place() + alignment - 1) / alignment * alignment;
  for (auto& tensor : tensors_) {
    if (tensor.begin % alignment != 0)
      cursor.refuse(data, fmt::format("`{}` begins at {} of the data, which is not a multiple of {}",
                                      shortened_text(tensor.name), tensor.begin, alignment));
    if (data > size || tensor.end > size - data)
      cursor.refuse(size, fmt::format("`{}` ends at {} of the data, and the file ends at {}: it is truncated",
                                      shortened_text(tensor.name), tensor.end, size > data ? size - data : 0));
    tensor.begin += data;
    tensor.end += data;
  }
  std::ranges::sort(tensors_, {}, [](const GgufTensor& tensor) { return std::pair(tensor.begin, tensor.end); });
  for (size_t i = 1; i < tensors_.size(); ++i)
    if (tensors_[i].begin < tensors_[i - 1].end)
      cursor.refuse(tensors_[i].begin, fmt::format("`{}` and `{}` overlap", shortened_text(tensors_[i - 1].name),
                                                   shortened_text(tensors_[i].name)));
}

const GgufTensor* GgufFile::find(const std::string& name) const {
  const auto found = std::ranges::find(tensors_, name, &GgufTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

std::span<const std::byte> GgufFile::data(const GgufTensor& tensor) const {
  return file_.bytes().subspan(tensor.begin, tensor.end - tensor.begin);
}

bool is_gguf(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  std::ifstream file(path, std::ios::binary);
  std::string start(magic.size(), '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  return file && start == magic;
}

}  // namespace runner
