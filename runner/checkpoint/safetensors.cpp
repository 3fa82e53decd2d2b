// Reads safetensors files strictly: the complete header is checked before any data is read.
#include "runner/checkpoint/safetensors.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/limits.hpp"

namespace runner {

namespace {

/// Parses the header and rejects duplicate keys of the top-level object. JSON parsers silently keep only one of them.
nlohmann::json parse_unique_keys(std::string_view text, const fs::path& path) {
  JsonFault fault;
  auto header = foreign_json(text, &fault);
  if (!header.is_object()) throw environment_error("{}: the header is not a JSON object", path.string());
  if (!fault.twice.empty()) throw environment_error("{}: `{}` occurs twice", path.string(), fault.twice);
  return header;
}

}  // namespace

std::optional<int64_t> find_dtype_bytes(const std::string& dtype) {
  static const std::map<std::string, int64_t> sizes = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I64", 8}, {"I32", 4},
      {"I16", 2}, {"I8", 1},  {"U64", 8}, {"U32", 4},  {"U16", 2},     {"U8", 1},      {"BOOL", 1}};
  auto found = sizes.find(dtype);
  return found == sizes.end() ? std::nullopt : std::optional(found->second);
}

int64_t dtype_bytes(const std::string& dtype) {
  auto bytes = find_dtype_bytes(dtype);
  RUNNER_CHECK(bytes, "`{}` is not a dtype", dtype);
  return *bytes;
}

std::optional<int64_t> checked_numel(const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(numel, size, &numel)) return std::nullopt;
  return numel;
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(path) {
  auto header = parse_header();
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__")
      read_metadata(entry);
    else
      read_tensor(name, entry);
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_layout();
  for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
}

nlohmann::json SafetensorsFile::parse_header() {
  auto bytes = file_.bytes();
  uint64_t length = 0;
  if (bytes.size() < sizeof length)
    throw environment_error("{} is not a safetensors file: {} bytes are too few for a header", path().string(),
                            bytes.size());
  for (size_t i = 0; i < sizeof length; ++i) length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  if (length > safetensors_header_bytes_max)
    throw environment_error("{} is not a safetensors file: a header of {} bytes (at most {} are allowed)",
                            path().string(), length, safetensors_header_bytes_max);
  if (length > bytes.size() - sizeof length)
    throw environment_error("{} is truncated: {} of at least {} bytes", path().string(), bytes.size(),
                            length + sizeof length);
  data_offset_ = sizeof length + length;
  return parse_unique_keys({reinterpret_cast<const char*>(bytes.data()) + sizeof length, length}, path());
}

void SafetensorsFile::read_metadata(const nlohmann::json& entry) {
  if (!entry.is_object()) throw environment_error("{}: `__metadata__` is not a table", path().string());
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) throw environment_error("{}: `__metadata__.{}` is not a string", path().string(), key);
    metadata_[key] = value.get<std::string>();
  }
}

void SafetensorsFile::read_tensor(const std::string& name, const nlohmann::json& entry) {
  auto sizes = [&](const char* key) {
    auto found = entry.find(key);
    bool right = found != entry.end() && found->is_array() &&
                 std::all_of(found->begin(), found->end(), [](const auto& size) { return size.is_number_unsigned(); });
    if (!right) throw environment_error("{}: `{}`: {} is not a list of sizes", path().string(), name, key);
    return found->get<std::vector<uint64_t>>();
  };
  if (!entry.is_object()) throw environment_error("{}: `{}` is not a table", path().string(), name);
  auto shape = sizes("shape"), offsets = sizes("data_offsets");
  auto dtype = entry.find("dtype");
  auto element_bytes =
      dtype != entry.end() && dtype->is_string() ? find_dtype_bytes(dtype->get<std::string>()) : std::nullopt;
  if (!element_bytes)
    throw environment_error("{}: `{}`: dtype {} cannot be read", path().string(), name,
                            dtype == entry.end() ? "(missing)" : dtype->dump());
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    throw environment_error("{}: `{}`: data_offsets [{}] are not a range", path().string(), name,
                            fmt::join(offsets, ", "));

  TensorInfo tensor{name, dtype->get<std::string>(), {shape.begin(), shape.end()}, offsets[0], offsets[1]};
  auto numel = checked_numel(tensor.shape);
  int64_t bytes = 0;
  if (!numel || __builtin_mul_overflow(*numel, *element_bytes, &bytes))
    throw environment_error("{}: `{}`: shape [{}] has too many elements", path().string(), name,
                            fmt::join(shape, ", "));
  if (tensor.end - tensor.begin != static_cast<uint64_t>(bytes))
    throw environment_error("{}: `{}`: {} bytes instead of the {} of {} [{}]", path().string(), name,
                            tensor.end - tensor.begin, bytes, tensor.dtype, fmt::join(shape, ", "));
  tensors_.push_back(std::move(tensor));
}

/// Checks that the tensors fill the data section without gap or overlap. The size is checked first, so that a truncated
/// file is reported as truncated.
void SafetensorsFile::check_layout() const {
  uint64_t size = file_.bytes().size() - data_offset_;
  uint64_t last = 0;
  for (const auto& tensor : tensors_) last = std::max(last, tensor.end);
  if (last > size)
    throw environment_error("{} is truncated: {} of {} bytes", path().string(), file_.bytes().size(),
                            data_offset_ + last);
  uint64_t end = 0;
  for (const auto& tensor : tensors_) {
    if (tensor.begin < end)
      throw environment_error("{}: `{}` overlaps the tensor before it by {} bytes", path().string(), tensor.name,
                              end - tensor.begin);
    if (tensor.begin > end)
      throw environment_error("{}: {} bytes before `{}` belong to no tensor", path().string(), tensor.begin - end,
                              tensor.name);
    end = tensor.end;
  }
  if (end < size)
    throw environment_error("{}: {} bytes after the last tensor belong to no tensor", path().string(), size - end);
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

std::span<const std::byte> SafetensorsFile::data(const TensorInfo& tensor) const {
  return file_.bytes().subspan(data_offset_ + tensor.begin, tensor.end - tensor.begin);
}

}  // namespace runner
