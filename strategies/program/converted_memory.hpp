// Bytes of what blocks compute with instead of their converted parameters (conversion.hpp), from the forward of a block to its backward.
#pragma once
#include <cstdint>
#include <map>
#include <utility>

#include "strategies/program/block_memory.hpp"
#include "strategies/program/memory_peak.hpp"

namespace runner {

class ConvertedMemory {
 public:
  /// `blocks` and `peak` must outlive this object.
  ConvertedMemory(const BlockMemory& blocks, MemoryPeak& peak) : blocks_(blocks), peak_(peak) {}

  /// Before the block runs.
  void make(uint32_t micro_batch, size_t block) {
    const int64_t bytes = blocks_.converted(block), working = blocks_.converting(block);
    if (bytes + working == 0) return;
    held_[{micro_batch, block}] = bytes;
    peak_.now.activations += bytes + working;
    peak_.note();
    peak_.now.activations -= working;
  }
  void drop(uint32_t micro_batch, size_t block) {
    if (const auto found = held_.extract({micro_batch, block})) peak_.now.activations -= found.mapped();
  }

 private:
  const BlockMemory& blocks_;
  MemoryPeak& peak_;
  std::map<std::pair<uint32_t, size_t>, int64_t> held_;  ///< by micro-batch and block
};

}  // namespace runner
