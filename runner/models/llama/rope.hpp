// Rotary position embedding in the rotate-half convention of Hugging Face: element i is paired with i + head_dim / 2.
#pragma once
#include <vector>

#include "strategies/collective/libtorch.hpp"

namespace runner::llama {

/// cos and sin of position x frequency, computed in fp64, kept per device and dtype. One per model, shared by its
/// blocks.
class RotaryTable {
 public:
  RotaryTable(std::vector<double> frequencies, int64_t max_seq_len);
  struct Slice {
    torch::Tensor cos, sin;  ///< [T, 1, head_dim / 2]
  };
  Slice first(int64_t seq_len, torch::Device device, torch::ScalarType dtype);

 private:
  std::vector<double> frequencies_;
  int64_t max_seq_len_;
  Slice table_;
};

/// x [B, T, heads, head_dim], strided or not -> contiguous. A rotation, so backward turns the other way and keeps
/// nothing.
torch::Tensor rotate(const torch::Tensor& x, const RotaryTable::Slice& table);

}  // namespace runner::llama
