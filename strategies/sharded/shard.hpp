// A unit of a plan on one rank: its shard, its gathered buffer, and how memory comes and goes behind the latter.
#pragma once
#include <memory>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/contract/transfers.hpp"
#include "strategies/offload/swapped_read.hpp"
#include "strategies/sharded/plan.hpp"

namespace runner {

struct Shard {
  FlatLayout layout;
  ShardPlaces places;
  torch::Tensor local;  ///< [layout.shard], master dtype, where the optimizer works; of a resident unit it may be part
                        ///< of `full`; undefined where it is in the file
  torch::Tensor sent;   ///< [layout.shard], gathered dtype, if gathers send something of its own from memory
  torch::Tensor written;  ///< [layout.shard], gathered dtype, host memory: where the update writes its new values too
  int64_t begin = 0;      ///< of its elements in the file's arrays
  std::unique_ptr<SwappedRead> reading;  ///< of it from the file, ahead of its use
  torch::Tensor full;                    ///< [layout.total], gathered dtype; storage empty unless gathered
  bool gathered = false;
  torch::Tensor incoming;  ///< buffer of a gather in flight
  c10::intrusive_ptr<c10d::Work> gather;
  StreamMark copied;                                                 ///< the end of a gather without a collective
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators;  ///< weakly held by autograd, so kept here
};

/// A 1-d tensor of so many elements with no memory behind it: views of it may be made, and memory comes by hand_over().
torch::Tensor without_memory(int64_t elements, const torch::TensorOptions& options);
/// Frees the memory behind a tensor and all its views, which stay.
void empty_storage(const torch::Tensor& tensor);
/// Gives the memory of `from` to the storage behind `to` (and all its views). No version counter moves.
void hand_over(const torch::Tensor& from, const torch::Tensor& to);

}  // namespace runner
