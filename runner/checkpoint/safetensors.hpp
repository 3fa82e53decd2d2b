// safetensors files: an 8-byte little-endian header length, a JSON header, raw bytes. They are read by mapping and
// written as a stream. A header has at most safetensors_header_bytes_max and json_depth_max (limits.hpp). Torch-free.
// Source: the format's description in huggingface/safetensors.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runner/base/files.hpp"
#include "runner/base/half.hpp"
#include "runner/base/xxh3.hpp"

namespace runner {

/// Bytes of one element; empty if the name is unknown or its elements are smaller than a byte.
std::optional<int64_t> find_dtype_bytes(const std::string& dtype);
/// Bytes of one element for a valid name: F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 I16 I8 U64 U32 U16 U8 BOOL.
int64_t dtype_bytes(const std::string& dtype);

/// Number of elements of a shape ([] has one); empty if a size is negative or the product overflows.
std::optional<int64_t> checked_numel(const std::vector<int64_t>& shape);

struct TensorInfo {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  ///< byte range in the data section
  int64_t numel() const { return checked_numel(shape).value(); }
};

/// A mapped file. The constructor checks the header: length, JSON, unique names, and byte ranges that lie inside the file,
/// match their shapes, do not overlap and leave no gap. It throws Error(usage) with the path and the fault.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  ///< sorted by byte range
  const TensorInfo* find(const std::string& name) const;
  std::span<const std::byte> data(const TensorInfo& tensor) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const fs::path& path() const { return file_.path(); }

 private:
  nlohmann::json parse_header();
  void read_metadata(const nlohmann::json& header);
  void read_tensor(const std::string& name, const nlohmann::json& entry);
  void check_layout() const;

  MappedFile file_;
  uint64_t data_offset_ = 0;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

struct WrittenFile {
  uint64_t bytes = 0;
  std::string xxh3;  ///< 128-bit XXH3 of the complete file, hex
};

/// Writes a new file and replaces an existing one of that name. The header is written first; the caller then writes the
/// tensors' bytes in order, in pieces of any size. The destructor removes the file unless finish() has returned. Throws
/// Error(environment), e.g. if the disk is full.
class SafetensorsWriter {
 public:
  /// Fills in the byte ranges of `tensors`. The header is padded so that the data begins at a multiple of 64 bytes.
  SafetensorsWriter(const fs::path& path, std::vector<TensorInfo> tensors,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  uint64_t data_offset() const { return data_offset_; }  ///< byte offset of the data section in the file
  void write(std::span<const std::byte> bytes);
  /// Calls fsync and closes the file. All bytes that the header declares must have been written.
  WrittenFile finish();

 private:
  fs::path path_;
  std::vector<TensorInfo> tensors_;
  uint64_t data_offset_ = 0, written_ = 0, expected_ = 0;
  Xxh3 hash_;
  int fd_ = -1;
  bool finished_ = false;
};

/// Rounds to nearest, ties to even.
uint16_t float_to_bfloat16(float value);

/// True for F64, F32, F16 and BF16.
bool is_float_dtype(const std::string& dtype);
/// Converts out.size() elements. F64 is rounded to float.
void to_floats(const std::string& dtype, std::span<const std::byte> bytes, std::span<float> out);
/// Converts to F32, F16 or BF16. Returns false if a finite value became infinite.
bool from_floats(const std::string& dtype, std::span<const float> values, std::span<std::byte> out);

}  // namespace runner
