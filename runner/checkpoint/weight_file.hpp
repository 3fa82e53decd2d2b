// A file with the weights of a pretrained model, under the names of Hugging Face: a safetensors or a GGUF file. Torch-free.
#pragma once
#include <memory>

#include "runner/checkpoint/safetensors.hpp"

namespace runner {

class WeightFile {
 public:
  virtual ~WeightFile() = default;
  virtual const fs::path& path() const = 0;
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  /// The dtypes that can be converted to floats, for messages.
  virtual std::vector<std::string> readable_dtypes() const = 0;
  /// Reads elements [offset, offset + out.size()). Thread-safe.
  virtual void read(const TensorInfo& tensor, int64_t offset, std::span<float> out) const = 0;
  /// The tensor's elements in the mapped file; empty if they are not stored as TensorInfo::dtype says.
  virtual std::span<const std::byte> mapped(const TensorInfo& /*tensor*/) const { return {}; }
};

/// Opens a file by its content and checks its header. Throws Error(environment) with the path and the fault, and Error(usage) for a
/// GGUF file of an unsupported architecture.
std::unique_ptr<WeightFile> open_weight_file(const fs::path& path);

}  // namespace runner
