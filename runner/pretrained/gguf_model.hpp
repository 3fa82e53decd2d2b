// The model of a GGUF file in the terms of a Hugging Face folder: config.json, and the names of tensors. Torch-free.
// Source: convert_hf_to_gguf.py of the llama.cpp project, which is inverted here.
#pragma once
#include "runner/pretrained/gguf_file.hpp"

namespace runner {

/// config.json of the model. Throws Error(usage), with the path, for an architecture or a setting that is not supported.
nlohmann::json gguf_config(const GgufFile& file);

/// Where a tensor of a GGUF file belongs, and what the conversion from Hugging Face's format changed.
struct GgufPlace {
  std::string name;          ///< in a Hugging Face folder; a tensor without a known place keeps its own name
  int64_t paired_heads = 0;  ///< above 0: rows of each of these heads are ordered for rotary pairs (2i, 2i + 1)
  float added = 0;           ///< was added to each value
};
GgufPlace gguf_place(const GgufFile& file, const std::string& tensor);

/// Reads elements [offset, offset + out.size()) of a tensor as they are in a Hugging Face folder.
void read_gguf(const GgufFile& file, const GgufTensor& tensor, const GgufPlace& place, int64_t offset,
               std::span<float> out);

}  // namespace runner
