#include "strategies/program/split_backward.hpp"

#include <algorithm>
#include <utility>

namespace runner {

namespace {

/// A parameter of the second part, and the matrix of the block that it belongs to: itself, or the one of which it is an adapter.
struct Later {
  size_t parameter = 0, matrix = 0;
  /// A is multiplied with the input of the matrix, and B gives its result. A matrix without adapter does both.
  bool has_input = true, has_result = true;
};

/// Adapters follow their matrix: A [rank, in], then B [out, rank].
std::vector<Later> later_parameters(const ModelSpec& model, const BlockSpec& block) {
  std::vector<Later> list;
  for (size_t i = 0; i < block.parameters.size(); ++i) {
    if (!is_later(block, block.parameters[i])) continue;
    Later one{.parameter = i, .matrix = i};
    const auto frozen_matrix = [&](size_t at) {
      const auto& before = block.parameters[at];
      return model.adapter && !before.trainable && before.shape.size() == 2;
    };
    if (i >= 1 && frozen_matrix(i - 1))
      one = {.parameter = i, .matrix = i - 1, .has_input = true, .has_result = false};
    else if (i >= 2 && frozen_matrix(i - 2))
      one = {.parameter = i, .matrix = i - 2, .has_input = false, .has_result = true};
    list.push_back(one);
  }
  return list;
}

bool is_row_parallel(const ParameterSpec& matrix) { return matrix.split && matrix.split->dim == 1; }

const SharedInput* input_of(const BlockSpec& block, const ParameterSpec& matrix) {
  for (const auto& input : block.inputs)
    if (std::ranges::find(input.matrices, matrix.name) != input.matrices.end()) return &input;
  return nullptr;
}

/// Whether the gradient of the matrix's result is not the one of the block's output: it is of all rows, or behind a dropout or a norm. Then
/// it is freed when the matrix's backward has ended.
bool has_own_gradient(const BlockSpec& block, size_t matrix) {
  const auto& parameter = block.parameters[matrix];
  int64_t end = 0;  // elements of it and of the parameters after it
  for (size_t i = matrix; i < block.parameters.size(); ++i) end += block.parameters[i].numel();
  for (const auto& moment : block.backward_moments)
    if (moment.arrived < end && end <= moment.arrived + moment.arriving) {
      const auto* input = input_of(block, parameter);
      return moment.released_per_token > (input ? input->elements_per_token : 0);
    }
  return false;
}

/// Collects tensors. Parameters that need the same one are listed with it.
class Tensors {
 public:
  explicit Tensors(const BlockSpec& block) : block_(block) {}

  void add_input(const Later& later) {
    const auto& parameter = block_.parameters[later.parameter];
    const auto& matrix = block_.parameters[later.matrix];
    const auto columns = static_cast<double>(parameter.shape[1]);
    if (!later.has_input) return add({.elements_per_token = columns}, later, nullptr);
    if (const auto* input = input_of(block_, matrix))
      return add({.elements_per_token = input->elements_per_token}, later, input);
    if (is_row_parallel(matrix))
      return add({.until = KeptTensor::Until::maker, .elements_per_token = columns}, later, nullptr);
    add({.until = KeptTensor::Until::block, .elements_per_token = columns}, later, &block_);
  }

  void add_gradient(const Later& later) {
    const auto rows = static_cast<double>(block_.parameters[later.parameter].shape[0]);
    const bool of_output =
        later.has_result && is_row_parallel(block_.parameters[later.matrix]) && !has_own_gradient(block_, later.matrix);
    add({.of = KeptTensor::Of::gradient,
         .until = of_output ? KeptTensor::Until::block : KeptTensor::Until::backward,
         .elements_per_token = rows},
        later, of_output ? &block_ : nullptr);
  }

  std::vector<KeptTensor> list() && { return std::move(list_); }

 private:
  /// `same`: tensors of one kind with the same pointer are one tensor; null: no other is the same.
  void add(KeptTensor tensor, const Later& later, const void* same) {
    for (size_t i = 0; same && i < list_.size(); ++i)
      if (same_[i] == same && list_[i].of == tensor.of) {
        list_[i].parameters.push_back(later.parameter);
        return;
      }
    tensor.parameters = {later.parameter};
    list_.push_back(std::move(tensor));
    same_.push_back(same);
  }

  const BlockSpec& block_;
  std::vector<KeptTensor> list_;
  std::vector<const void*> same_;  ///< of each tensor
};

}  // namespace

bool is_later(const BlockSpec& block, const ParameterSpec& parameter) {
  return block.kind == BlockKind::transformer && parameter.trainable && parameter.shape.size() == 2;
}

bool has_later_products(const BlockSpec& block) {
  return std::ranges::any_of(block.parameters, [&](const auto& parameter) { return is_later(block, parameter); });
}

double weight_flops_per_token(const ModelSpec& model, size_t block) {
  double flops = 0;
  if (block < model.first_trained_block()) return flops;
  for (const auto& parameter : model.blocks[block].parameters)
    if (is_later(model.blocks[block], parameter)) flops += 2 * static_cast<double>(parameter.numel());
  return flops;
}

std::vector<KeptTensor> tensors_kept_for_weights(const ModelSpec& model, size_t block) {
  Tensors tensors(model.blocks[block]);
  for (const auto& later : later_parameters(model, model.blocks[block])) {
    tensors.add_input(later);
    tensors.add_gradient(later);
  }
  return std::move(tensors).list();
}

}  // namespace runner
