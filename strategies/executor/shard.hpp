// A unit of a plan on one rank: its shard and its gathered buffer, whose storage is allocated and freed while its views stay
// valid.
#pragma once
#include <memory>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/contract/transfers.hpp"
#include "strategies/executor/quantized_shard.hpp"
#include "strategies/offload/swapped_read.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

struct Shard {
  FlatLayout layout;
  int64_t first = 0;  ///< first element of this rank's shard in the layout
  ShardPlaces places;
  torch::Tensor local;  ///< master: [layout.shard], master dtype, where the update runs; may be a view of `full` in a
                        ///< resident unit; undefined if it is in the file
  torch::Tensor
      sent;  ///< [layout.shard], gathered dtype: what gathers send, if it is a separate tensor in memory; of a
             ///< quantized unit: bytes
  std::optional<QuantizedShard> quantized;  ///< converts `sent`
  torch::Tensor written;                 ///< [layout.shard], gathered dtype: the update also writes its new values here
  int64_t begin = 0;                     ///< first element of the shard in the file's arrays
  std::unique_ptr<SwappedRead> reading;  ///< a read of the shard from the file, started in advance
  torch::Tensor full;                    ///< [layout.total], gathered dtype; storage empty unless gathered
  bool gathered = false;
  torch::Tensor incoming;  ///< buffer of a gather in flight
  c10::intrusive_ptr<c10d::Work> gather;
  StreamMark copied;  ///< end of a gather that needs no collective
};

/// A 1-d tensor with `elements` elements and no memory. Views of it can be made; hand_over() gives it memory.
torch::Tensor without_memory(int64_t elements, const torch::TensorOptions& options);
/// Frees the memory of a tensor and of all its views. The tensor objects stay valid.
void empty_storage(const torch::Tensor& tensor);
/// Moves the memory of `from` to the storage of `to` and of all its views. Does not change version counters.
void hand_over(const torch::Tensor& from, const torch::Tensor& to);

}  // namespace runner
