// Forward and backward of a model's blocks in a program, block by block, as the executor on LibTorch runs them (executor/block_graphs.hpp).
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "strategies/contract/module.hpp"
#include "strategies/xla/arrays.hpp"
#include "strategies/xla/trace.hpp"

namespace runner::xla {

class ModelPass {
 public:
  /// `parameters`: what the device has of each. All must outlive the pass.
  ModelPass(Trace& trace, Model& model, const Job& job, const ParallelPlan& plan, const Arrays& arrays,
            const std::vector<pjrt::Value>& parameters);

  /// Runs the blocks without gradients.
  pjrt::Value forward(const ForwardContext& context);
  /// Runs the blocks, and keeps what backward() needs. Returns the loss.
  pjrt::Value forward_for_backward(const ForwardContext& context);
  /// Calls `take` for each unit with this device's gradients of its whole trained parameters, before any sum over devices.
  /// `factor` is the gradient of the loss.
  using Take = std::function<void(const std::vector<const ParameterArray*>& parameters,
                                  const std::vector<pjrt::Value>& gradients)>;
  void backward(const pjrt::Value& factor, const Take& take);

 private:
  struct Graph {
    torch::Tensor input;   ///< a leaf, or the kept input of a block that is recomputed
    torch::Tensor output;  ///< undefined: the block has no graph
  };
  torch::Tensor run(size_t block, const torch::Tensor& x);
  /// Gathers the units that the block uses and that were not gathered yet, and puts their parameters into the model's slots.
  void gather(size_t block);
  /// The same in backward, for units that are not kept after forward (Unit::keep_after_forward). A barrier keeps the compiler from using
  /// the first gather for both.
  void gather_again(size_t block);
  void recompute(size_t last);
  /// Differentiates a block. Returns the gradient of its input.
  torch::Tensor differentiate(size_t block, const torch::Tensor& gradient);
  void take_unit(size_t unit, const Take& take);

  Trace& trace_;
  Model& model_;
  const Job& job_;
  const ParallelPlan& plan_;
  const Arrays& arrays_;
  const std::vector<pjrt::Value>& parameters_;
  std::optional<ForwardContext> context_;
  std::vector<std::vector<const ParameterArray*>> units_;  ///< parameters of each
  std::vector<std::vector<size_t>> slots_of_;              ///< of each block, also those of earlier blocks
  std::vector<std::vector<size_t>> units_of_;              ///< of each block
  std::vector<size_t> first_use_;                          ///< of each unit: the first block with it
  std::vector<bool> gathered_, gathered_again_;            ///< each unit: in forward, in backward
  std::vector<Graph> graphs_;
  std::vector<torch::Tensor> gradients_;  ///< by slot
};

}  // namespace runner::xla
