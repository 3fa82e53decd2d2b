// The data types of tensors in GGUF files, and the conversion of their blocks to floats. Source: ggml of the llama.cpp project
// (ggml-common.h, ggml-quants.c). Torch-free.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace runner {

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

}  // namespace runner
