// Reads safetensors files strictly: the complete header is checked before any data is read. Writes them: hashes and writes the bytes in
// one pass, then calls fsync. Converts their elements.
#include "runner/checkpoint/safetensors.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/limits.hpp"
#include "runner/base/round_up.hpp"

namespace runner {

namespace {

/// Parses the header and rejects duplicate keys of the top-level object. JSON parsers silently keep only one of them.
nlohmann::json parse_unique_keys(std::string_view text, const fs::path& path) {
  JsonFault fault;
  auto header = foreign_json(text, &fault);
  if (!header.is_object()) throw usage_error("{}: the header is not a JSON object", path.string());
  if (!fault.twice.empty()) throw usage_error("{}: `{}` occurs twice", path.string(), shortened_text(fault.twice));
  return header;
}

constexpr size_t data_alignment = 64;
constexpr size_t chunk_bytes = 1 << 20;  ///< small enough to be in the cache for both hashing and writing

/// The header's length and JSON, padded with spaces as the format allows.
std::string encode_header(const std::vector<TensorInfo>& tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  for (const auto& tensor : tensors)
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  RUNNER_CHECK(header.size() == tensors.size(), "two tensors of one name");
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::string text = header.dump();
  uint64_t length = round_up(sizeof(uint64_t) + text.size(), data_alignment) - sizeof(uint64_t);
  text.resize(length, ' ');
  std::string encoded;
  for (size_t i = 0; i < sizeof length; ++i) encoded.push_back(static_cast<char>(length >> (8 * i)));
  return encoded + text;
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
    throw usage_error("{} is not a safetensors file: {} bytes are too few for a header", path().string(), bytes.size());
  for (size_t i = 0; i < sizeof length; ++i) length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  if (length > safetensors_header_bytes_max)
    throw usage_error("{} is not a safetensors file: a header of {} bytes (at most {} are allowed)", path().string(),
                      length, safetensors_header_bytes_max);
  if (length > bytes.size() - sizeof length)
    throw usage_error("{} is truncated: {} of at least {} bytes", path().string(), bytes.size(),
                      length + sizeof length);
  data_offset_ = sizeof length + length;
  return parse_unique_keys({reinterpret_cast<const char*>(bytes.data()) + sizeof length, length}, path());
}

void SafetensorsFile::read_metadata(const nlohmann::json& entry) {
  if (!entry.is_object()) throw usage_error("{}: `__metadata__` is not a table", path().string());
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string())
      throw usage_error("{}: `__metadata__.{}` is not a string", path().string(), shortened_text(key));
    metadata_[key] = value.get<std::string>();
  }
}

void SafetensorsFile::read_tensor(const std::string& name, const nlohmann::json& entry) {
  auto sizes = [&](const char* key) {
    auto found = entry.find(key);
    bool right = found != entry.end() && found->is_array() &&
                 std::all_of(found->begin(), found->end(), [](const auto& size) { return size.is_number_unsigned(); });
    if (!right) throw usage_error("{}: `{}`: {} is not a list of sizes", path().string(), shortened_text(name), key);
    return found->get<std::vector<uint64_t>>();
  };
  if (!entry.is_object()) throw usage_error("{}: `{}` is not a table", path().string(), shortened_text(name));
  auto shape = sizes("shape"), offsets = sizes("data_offsets");
  auto dtype = entry.find("dtype");
  auto element_bytes =
      dtype != entry.end() && dtype->is_string() ? find_dtype_bytes(dtype->get<std::string>()) : std::nullopt;
  if (!element_bytes)
    throw usage_error("{}: `{}`: dtype {} cannot be read", path().string(), shortened_text(name),
                      dtype == entry.end() ? "(missing)" : shortened_json(*dtype));
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    throw usage_error("{}: `{}`: data_offsets [{}] are not a range", path().string(), shortened_text(name),
                      shortened_text(fmt::format("{}", fmt::join(offsets, ", "))));

  TensorInfo tensor{name, dtype->get<std::string>(), {shape.begin(), shape.end()}, offsets[0], offsets[1]};
  auto numel = checked_numel(tensor.shape);
  int64_t bytes = 0;
  if (!numel || __builtin_mul_overflow(*numel, *element_bytes, &bytes))
    throw usage_error("{}: `{}`: shape [{}] has too many elements", path().string(), shortened_text(name),
                      shortened_text(fmt::format("{}", fmt::join(shape, ", "))));
  if (tensor.end - tensor.begin != static_cast<uint64_t>(bytes))
    throw usage_error("{}: `{}`: {} bytes instead of the {} of {} [{}]", path().string(), shortened_text(name),
                      tensor.end - tensor.begin, bytes, tensor.dtype,
                      shortened_text(fmt::format("{}", fmt::join(shape, ", "))));
  tensors_.push_back(std::move(tensor));
}

/// Checks that the tensors fill the data section without gap or overlap. The size is checked first, so that a truncated
/// file is reported as truncated.
void SafetensorsFile::check_layout() const {
  uint64_t size = file_.bytes().size() - data_offset_;
  uint64_t last = 0;
  for (const auto& tensor : tensors_) last = std::max(last, tensor.end);
  if (last > size)
    throw usage_error("{} is truncated: {} of {} bytes", path().string(), file_.bytes().size(), data_offset_ + last);
  uint64_t end = 0;
  for (const auto& tensor : tensors_) {
    if (tensor.begin < end)
      throw usage_error("{}: `{}` overlaps the tensor before it by {} bytes", path().string(),
                        shortened_text(tensor.name), end - tensor.begin);
    if (tensor.begin > end)
      throw usage_error("{}: {} bytes before `{}` belong to no tensor", path().string(), tensor.begin - end,
                        shortened_text(tensor.name));
    end = tensor.end;
  }
  if (end < size)
    throw usage_error("{}: {} bytes after the last tensor belong to no tensor", path().string(), size - end);
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

std::span<const std::byte> SafetensorsFile::data(const TensorInfo& tensor) const {
  return file_.bytes().subspan(data_offset_ + tensor.begin, tensor.end - tensor.begin);
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), tensors_(std::move(tensors)) {
  uint64_t end = 0;
  for (auto& tensor : tensors_) {
    tensor.begin = end;
    end = tensor.end = end + static_cast<uint64_t>(tensor.numel() * dtype_bytes(tensor.dtype));
  }
  std::string header = encode_header(tensors_, metadata);
  data_offset_ = header.size();
  expected_ = data_offset_ + end;
  // An existing file is not reused: an older process that has not ended yet may still write to it.
  ::unlink(path_.c_str());
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) throw environment_error("cannot write {}: {}", path_.string(), std::strerror(errno));
  try {
    write(std::as_bytes(std::span(header.data(), header.size())));
  } catch (...) {
    ::close(fd_);
    ::unlink(path_.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!finished_) ::unlink(path_.c_str());
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  RUNNER_CHECK(bytes.size() <= expected_ - written_, "more bytes for {} than its header says", path_.string());
  while (!bytes.empty()) {
    auto chunk = bytes.first(std::min(bytes.size(), chunk_bytes));
    ssize_t n = ::write(fd_, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw environment_error("cannot write {}: {}", path_.string(), std::strerror(errno));
    hash_.update(chunk.first(static_cast<size_t>(n)));
    written_ += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

WrittenFile SafetensorsWriter::finish() {
  RUNNER_CHECK(written_ == expected_, "{} of {} bytes for {}", written_, expected_, path_.string());
  if (::fsync(fd_) != 0) throw environment_error("cannot sync {}: {}", path_.string(), std::strerror(errno));
  // Network filesystems may report a full disk only here.
  if (::close(std::exchange(fd_, -1)) != 0)
    throw environment_error("cannot write {}: {}", path_.string(), std::strerror(errno));
  finished_ = true;
  return {written_, hash_.hex()};
}

uint16_t float_to_bfloat16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

namespace {

/// Tensors in a file may be unaligned, so elements are copied with memcpy.
template <typename Element, typename Convert>
void decode(std::span<const std::byte> bytes, std::span<float> out, Convert convert) {
  for (size_t i = 0; i < out.size(); ++i) {
    Element element;
    std::memcpy(&element, bytes.data() + i * sizeof element, sizeof element);
    out[i] = convert(element);
  }
}

template <typename Element, typename Convert>
void encode(std::span<const float> values, std::span<std::byte> out, Convert convert) {
  for (size_t i = 0; i < values.size(); ++i) {
    Element element = convert(values[i]);
    std::memcpy(out.data() + i * sizeof element, &element, sizeof element);
  }
}

bool overflows(std::span<const float> values, float limit) {
  for (float value : values)
    if (std::fabs(value) >= limit && std::isfinite(value)) return true;
  return false;
}

}  // namespace

bool is_float_dtype(const std::string& dtype) {
  return dtype == "F64" || dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

void to_floats(const std::string& dtype, std::span<const std::byte> bytes, std::span<float> out) {
  RUNNER_CHECK(is_float_dtype(dtype), "`{}`", dtype);
  RUNNER_CHECK(bytes.size() == out.size() * static_cast<size_t>(dtype_bytes(dtype)), "{} bytes for {} of {}",
               bytes.size(), out.size(), dtype);
  if (dtype == "F64") decode<double>(bytes, out, [](double value) { return static_cast<float>(value); });
  if (dtype == "F32") std::memcpy(out.data(), bytes.data(), bytes.size());
  if (dtype == "F16") decode<uint16_t>(bytes, out, half_to_float);
  if (dtype == "BF16") decode<uint16_t>(bytes, out, bfloat16_to_float);
}

bool from_floats(const std::string& dtype, std::span<const float> values, std::span<std::byte> out) {
  RUNNER_CHECK(is_float_dtype(dtype) && dtype != "F64", "`{}`", dtype);
  RUNNER_CHECK(out.size() == values.size() * static_cast<size_t>(dtype_bytes(dtype)), "{} of {} into {} bytes",
               values.size(), dtype, out.size());
  if (dtype == "F32") std::memcpy(out.data(), values.data(), out.size());
  if (dtype == "F16") encode<uint16_t>(values, out, float_to_half);
  if (dtype == "BF16") encode<uint16_t>(values, out, float_to_bfloat16);
  if (dtype == "F16") return !overflows(values, 65520.0f);
  if (dtype == "BF16") return !overflows(values, 0x1.ffp127f);
  return true;
}

}  // namespace runner
