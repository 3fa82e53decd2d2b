// Rotary position embedding with Hugging Face's rotate-half convention: element i is paired with i + head_dim / 2.
#pragma once
#include <vector>

#include "strategies/collective/libtorch.hpp"

namespace runner::llama {

/// cos and sin of position x frequency, computed in fp64 and cached for the last device and dtype. A model has one
/// table, which its blocks share.
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

/// x [B, T, heads, head_dim], strided or not -> contiguous. Backward is the inverse rotation, so it does not save x.
torch::Tensor rotate(const torch::Tensor& x, const RotaryTable::Slice& table);

}  // namespace runner::llama
