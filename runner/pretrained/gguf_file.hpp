// GGUF files of llama.cpp, which contain a model's settings, tokenizer and weights. They are read by mapping; all data are little
// endian. Metadata have at most gguf_metadata_bytes_max, gguf_elements_max and gguf_nesting_max (limits.hpp). Torch-free. Source: docs/gguf.md of the ggml project.
#pragma once
#include <nlohmann/json.hpp>

#include "runner/base/files.hpp"
#include "runner/pretrained/gguf_blocks.hpp"

namespace runner {

struct GgufTensor {
  std::string name;
  const GgufType* type = nullptr;
  std::vector<int64_t> shape;   ///< rows first: the reverse of the file's order
  uint64_t begin = 0, end = 0;  ///< bytes of the file
};

/// A mapped file of version 2 or 3. The constructor checks the header, the metadata and the places of all tensors: lengths lie
/// inside the file, names are unique, and tensors do not overlap. It throws Error(environment) with the path, the offset in bytes
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
