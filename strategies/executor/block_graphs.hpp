// The forward and the backward of a model, one block at a time. Each block has an autograd graph of its own, which begins at the
// block's input and at its parameters. Several micro-batches may be between forward and backward, as in a pipeline.
//
// Autograd does not accumulate the gradients of parameters here. A node at the end of each parameter's graph passes the gradient
// on as soon as it is computed, so no hook is needed and the caller decides where it is added. Gradients of a tied parameter
// come from two blocks: they are added first and passed on once per micro-batch, as autograd does for one graph of all blocks.
//
// A recomputed block (activation checkpointing) runs without a graph in forward, and only its input is kept. recompute() runs it
// again with a graph. LibTorch's saved-tensor hooks, which PyTorch uses for this, need Python objects in this version. Consecutive
// recomputed blocks of a layer are recomputed together, before the backward of the last one, and only the input of the first one is
// kept. Gradients of a recomputed block are kept until the end of its backward. By then its saved activations are freed, so the
// buffer for gradients does not add to them.
//
// A plug-in may convert parameters (conversion.hpp). The graph of a block then continues from what it computes to the parameter. A
// parameter is cast to the compute dtype before: strategies have it in different dtypes, and the plug-in sees the same values.
//
// In a pipeline whose schedule splits backwards, backward() leaves the products for the gradients of matrices (weight_gradients.hpp), and
// backward_weight() computes them. The inputs of these products and the gradients of their results exist until then.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/conversion.hpp"
#include "strategies/contract/entry.hpp"
#include "strategies/contract/host_checkpoints.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

class BlockGraphs {
 public:
  /// Receives the gradient of the parameter in `slot`. It is called in the thread that executes backward on the device, while
  /// backward() waits, so it must not call a collective.
  using Take = std::function<void(size_t slot, torch::Tensor gradient)>;
  /// Receives a gradient like Take, but in the form of RowGradients::add_rows().
  using TakeRows = std::function<void(size_t slot, const torch::Tensor& ids, const torch::Tensor& rows)>;
  /// The model and the conversion, which may be null, must outlive this object.
  BlockGraphs(Model& model, const Job& job, torch::Device device, Conversion* conversion, Take take,
              TakeRows take_rows);

  /// Puts a tensor that shares the memory of `value` into the model's slot. Its gradients go to `take`, if it is trained.
  void place_parameter(size_t slot, const torch::Tensor& value);

  /// Begins a micro-batch and drops what an earlier one with this number has left. `context` and its batch are used until the last
  /// backward(). `loss_factor` multiplies the loss that is differentiated, but not the one that take_output() returns.
  void begin(size_t micro_batch, const ForwardContext& context, double loss_factor);
  /// The micro-batch of the functions below.
  void select(size_t micro_batch) { pass_ = &passes_.at(micro_batch); }
  /// Blocks run in ascending order. If gradients are enabled, the block keeps what its backward needs: its graph, or, if it begins
  /// a recomputation, its input.
  void forward(size_t block);
  /// Blocks that are recomputed together run in ascending order.
  void recompute(size_t block);
  /// Blocks run in descending order.
  void backward(size_t block);
  /// The second part of the backward, if the schedule splits it. The micro-batches of a block run in the order of their backwards.
  void backward_weight(size_t block);
  // ---- between the stages of a pipeline
  /// The output of the last forward, and the input of the next one.
  torch::Tensor take_output_of_stage() { return std::exchange(pass_->x, {}); }
  void put_input(torch::Tensor x) { pass_->x = std::move(x); }
  /// The gradient of the input of the last block whose backward has run, and that of the output of the next one.
  torch::Tensor take_gradient() { return std::exchange(pass_->dy, {}); }
  void put_gradient(torch::Tensor dy) { pass_->dy = std::move(dy); }
  /// A new tensor for one of them.
  torch::Tensor empty_stream() const;

  /// The output of the last block: the summed loss, or logits. Taking it twice is a mistake.
  torch::Tensor take_output();

 private:
  class Sink;
  class Feed;
  class Converted;
  torch::Tensor run(size_t block, const torch::Tensor& x);
  void gradient_arrived(size_t slot, torch::Tensor gradient);
  void rows_arrived(size_t slot, const torch::Tensor& ids, const torch::Tensor& rows);
  void run_backward(torch::autograd::Edge output, torch::Tensor gradient);
  void pass_on(size_t slot, torch::Tensor gradient);
  void pass_on_kept();
  void pass_on_what_waits();

  struct Graph {
    torch::Tensor input;         ///< of the block; a leaf
    bool input_on_host = false;  ///< the input is in `host_checkpoints`
    torch::autograd::Edge output;
    WeightGradients::Pointer later;  ///< what the backward leaves; null: nothing
  };
  /// A micro-batch.
  struct Pass {
    ForwardContext context;
    double loss_factor = 1;
    torch::Tensor x;                     ///< output of the last forward or recomputation
    torch::Tensor dy;                    ///< gradient of the output of the block whose backward is next
    std::vector<Graph> graphs;           ///< of each block
    std::vector<torch::Tensor> waiting;  ///< of each tied parameter: its gradient from later blocks than its owner
    std::optional<HostCheckpoints> host_checkpoints;  ///< set if inputs of recomputed blocks are kept in host memory
  };

  Model& model_;
  torch::Device device_;
  Conversion* conversion_;
  std::vector<std::vector<size_t>> converted_;  ///< slots, of each block; empty without a conversion
  bool autocast_;
  at::ScalarType compute_;
  std::vector<bool> recompute_;
  bool splits_;                             ///< backwards have two parts
  size_t first_trained_;                    ///< the block at which backward ends; blocks before it run without a graph
  std::vector<bool> trainable_;             ///< of each parameter
  std::optional<bool> checkpoints_pinned_;  ///< set if inputs of recomputed blocks are kept in host memory
  Take take_;
  TakeRows take_rows_;
  std::vector<size_t> owner_;  ///< of each parameter: the block that lists it, the first one that uses it
  size_t in_backward_ = 0;     ///< the block
  std::vector<std::pair<size_t, torch::Tensor>>
      kept_;                       ///< gradients of a recomputed block, until the end of its backward
  std::map<size_t, Pass> passes_;  ///< by the number of the micro-batch
  Pass* pass_ = nullptr;           ///< the selected one
};

}  // namespace runner
