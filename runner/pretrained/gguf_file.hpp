// GGUF files of llama.cpp, which contain a model's settings, tokenizer and weights. They are read by mapping; all data
// are little endian. Metadata have at most gguf_metadata_bytes_max, gguf_elements_max and gguf_nesting_max
// (limits.hpp). Torch-free. Source: docs/gguf.md of the ggml project.
#pragma once
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "runner/base/files.hpp"

namespace runner {

// The data types of tensors, and the conversion of their blocks to floats. Source: ggml of the llama.cpp project (ggml-common.h,
// ggml-quants.c).

/// Elements are stored in blocks. A block is a part of a row.
struct GgufType {
  uint32_t id = 0;  ///< in the file
  const char* name = "";
  int64_t block_elements = 1, block_bytes = 1;
  void (*decode)(const uint8_t* block, float* out) = nullptr;  ///< null: cannot be converted
};

/// Null if there is no type of this number.
const GgufType* find_gguf_type(uint32_t id);
/// Null if there is no type of this name.
const GgufType* find_gguf_type(const std::string& name);
/// The types that can be converted, for messages.
std::vector<std::string> readable_gguf_types();

/// Converts elements [offset, offset + out.size()) of a tensor whose blocks are `data`.
void decode_gguf(const GgufType& type, std::span<const std::byte> data, int64_t offset, std::span<float> out);

struct GgufTensor {
  std::string name;
  const GgufType* type = nullptr;
  std::vector<int64_t> shape;   ///< rows first: the reverse of the file's order
  uint64_t begin = 0, end = 0;  ///< bytes of the file
};

/// A mapped file of version 2 or 3. The constructor checks the header, the metadata and the places of all tensors: lengths lie
/// inside the file, names are unique, and tensors do not overlap. It throws Error(usage) with the path, the offset in bytes
/// and the fault.
class GgufFile {
 public:
  explicit GgufFile(const fs::path& path);
  const fs::path& path() const { return file_.path(); }

  /// {"general.architecture": "llama", ...}. Values are numbers, booleans, strings and lists of them. A float has the double with
  /// the same shortest decimal text, so that 1e-5 is 1e-5.
  const nlohmann::json& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  ///< sorted by their places
  const GgufTensor* find(const std::string& name) const;
  std::span<const std::byte> data(const GgufTensor& tensor) const;

 private:
  MappedFile file_;
  nlohmann::json metadata_ = nlohmann::json::object();
  std::vector<GgufTensor> tensors_;
};

/// Whether the file exists and is a GGUF file, by its first bytes.
bool is_gguf(const fs::path& path);

}  // namespace runner
