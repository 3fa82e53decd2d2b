// This rank's part of a tensor of the training state, as LibTorch code uses it.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/engine/engine.hpp"
#include "strategies/offload/swapped_arrays.hpp"

namespace runner {

/// Elements [begin, begin + count) of an array in this rank's file on NVMe. Used instead of a tensor.
struct SwappedSpan {
  std::shared_ptr<SwappedArrays> file;
  size_t array = 0;
  int64_t begin = 0, count = 0;
};

/// Elements [offset, offset + numel()) of a flattened slice of the global tensor. The fields are those of StateView.
struct StateTensor {
  std::string name;
  std::vector<int64_t> global_shape;
  int64_t offset = 0;
  torch::Tensor local = {};  ///< contiguous, 1-d; undefined if the elements are in a file
  int64_t write_begin = 0, write_end = 0;
  std::optional<SwappedSpan> swapped = {};  ///< the elements in the file, fp32
  bool optional = false;
  TensorSlice slice = {};

  int64_t numel() const { return swapped ? swapped->count : local.numel(); }
  /// Copies local elements [begin, begin + count) to host memory.
  torch::Tensor read(int64_t begin, int64_t count) const;
  /// Overwrites local elements [begin, begin + values.numel()) with a 1-d tensor in host memory, of any dtype.
  void write(int64_t begin, const torch::Tensor& values) const;
};

/// The view refers to the storage of the tensor.
StateView view_of(StateTensor tensor);
std::vector<StateView> views_of(std::vector<StateTensor> tensors);
/// The dtype that a safetensors file names "F32", and so on. Throws Error(environment) for others than those of
/// floating-point numbers and of 8-bit codes.
torch::ScalarType scalar_type_named(const std::string& name);

/// The piece "replica/NAME" of a rank above 0 in a tensor of shape [ranks above 0, elements], if replicas differ.
StateTensor replica_piece(const World& world, const std::string& name, const torch::Tensor& values);

}  // namespace runner
