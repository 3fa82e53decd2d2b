// A stored model in memory, for forward passes without gradients.
#pragma once
#include <memory>
#include <vector>

#include "runner/checkpoint/stored_model.hpp"
#include "runner/inference/request.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/module.hpp"
#include "strategies/engine/host_batch.hpp"

namespace runner {

/// Weights that have the wanted dtype in a mapped file stay there: they are read when they are used, and not copied.
class LoadedModel {
 public:
  enum class Head { needed, left_out };
  /// Throws Error(usage) if the head is needed and the folder has none.
  LoadedModel(const LoadRequest& request, StoredModel stored, Head head = Head::needed);

  const StoredModel& stored() const { return stored_; }
  const Recipe::Model& settings() const { return stored_.recipe.model; }
  torch::Device device() const { return device_; }
  torch::ScalarType dtype() const { return dtype_; }

  /// The fields that the model needs, by their names. Those that the batch does not have are undefined: without positions, a row is one
  /// sequence. Throws Error(usage) for a token that the model does not know.
  MicroBatch micro_batch(const HostBatch& batch) const;

  /// The output of the last block.
  torch::Tensor run(const MicroBatch& batch, ForwardContext context) const;
  /// The output of the block before the head.
  torch::Tensor hidden_states(const MicroBatch& batch) const;

 private:
  torch::Tensor forward(size_t blocks, const MicroBatch& batch, ForwardContext context) const;

  StoredModel stored_;
  torch::Device device_;
  torch::ScalarType dtype_;
  std::unique_ptr<Model> model_;
};

}  // namespace runner
