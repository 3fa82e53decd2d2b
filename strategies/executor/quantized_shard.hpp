// The shard of a unit whose parameters are stored in NF4, and its conversion to the gathered dtype.
//
// A rank's shard is a tensor of bytes: the codes of its elements, then the factors of their blocks, in fp32 or, with double
// quantization, as 8-bit codes. Gathers send these bytes. The second level of double quantization (a mean for each parameter, a factor
// for each 16384 elements) is small, and every rank has all of it.
#pragma once
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/flat_layout.hpp"
#include "strategies/contract/quantized_source.hpp"

namespace runner {

class QuantizedShard {
 public:
  QuantizedShard(const ModelSpec& model, const FlatLayout& layout, torch::Device device);

  /// Bytes of a rank's shard.
  int64_t bytes() const { return nf4_bytes(spec_, layout_.shard); }
  /// Quantizes the values of `source` into `shard` (bytes in host memory), which has the elements from `first` on.
  void fill(const ParameterSource& source, int64_t first, torch::Tensor shard);
  /// The values of all shards, whose bytes follow each other in `gathered`, on its device: [layout.total].
  torch::Tensor values(const torch::Tensor& gathered, torch::ScalarType dtype) const;

 private:
  static void fill_part(const QuantizedParameter& parameter, int64_t begin, int64_t count, uint8_t* codes,
                        uint8_t* factors);
  torch::Tensor factors_of(const torch::Tensor& gathered) const;

  QuantizationSpec spec_;
  const FlatLayout& layout_;
  torch::Device device_;
  std::vector<float> means_;           ///< of each item
  std::vector<torch::Tensor> groups_;  ///< of each item: the factors of its groups, on the device
};

}  // namespace runner
