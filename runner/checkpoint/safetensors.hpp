// safetensors: 8-byte little-endian header length, JSON header, raw bytes. Read by mapping, written as a stream. Torch-free.
// Source: the format's description in huggingface/safetensors.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "runner/base/files.hpp"

namespace runner {

/// dtype names as in the format: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL.
int64_t dtype_bytes(const std::string& dtype);

struct TensorInfo {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  ///< byte range in the data section
  int64_t numel() const;
};

/// A mapped file. The constructor checks the header (length, JSON, ranges inside the file, no overlap, sizes that match
/// shapes); throws Error(environment) naming the file and the fault.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(const std::string& name) const;
  std::span<const std::byte> data(const TensorInfo& tensor) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const fs::path& path() const { return file_.path(); }

 private:
  MappedFile file_;
  uint64_t data_offset_ = 0;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to write; `data` must stay alive until write_safetensors returns.
struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};
struct WrittenFile {
  uint64_t bytes = 0;
  std::string xxh3;  ///< 128-bit XXH3 of the whole file, hex
};
/// Writes and fsyncs; the header is padded so that data begins 64-byte aligned. Throws Error(environment), e.g. disk full.
WrittenFile write_safetensors(const fs::path& path, const std::vector<TensorToWrite>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace runner
