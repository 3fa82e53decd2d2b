// Rotary position embedding with Hugging Face's rotate-half convention: element i is paired with i + rotary_dim / 2.
#pragma once
#include "runner/models/decoder/rope.hpp"
#include "strategies/collective/libtorch.hpp"

namespace runner::decoder {

/// cos and sin of position x frequency, computed in fp64 and cached for the last device and dtype. Blocks with the same
/// frequencies share a table.
class RotaryTable {
 public:
  RotaryTable(RopeFrequencies frequencies, int64_t max_seq_len);
  struct Slice {
    torch::Tensor cos, sin;  ///< [T, 1, rotary_dim / 2]
  };
  /// The first positions.
  Slice first(int64_t seq_len, torch::Device device, torch::ScalarType dtype);

 private:
  RopeFrequencies frequencies_;
  int64_t max_seq_len_;
  Slice table_;
  bool long_ = false;  ///< the table has the frequencies of long sequences
};

/// x [B, T, heads, head_dim], strided or not -> contiguous. The first rotary_dim elements of a head are rotated. Backward
/// is the inverse rotation, so it does not save x. `positions` [B, T]: those of the tokens; undefined: 0 to T - 1 in each row.
torch::Tensor rotate(const torch::Tensor& x, const RotaryTable::Slice& table, const torch::Tensor& positions = {});

}  // namespace runner::decoder
