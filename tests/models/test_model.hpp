// A model with filled slots, like under the simplest strategy, for the torch tests of this folder.
#pragma once

#include "recipes.hpp"
#include "runner/models/module.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/initialize.hpp"
#include "strategies/engine/token_batch.hpp"
#include "tests/support/hashed_weights.hpp"

namespace runner::testing {

/// One thread for the complete program: sums have one order, and no OpenMP threads compete with other tests.
inline const bool one_thread = [] {
  at::set_num_threads(1);
  return true;
}();

enum class Weights { seeded, hashed };

inline torch::Tensor tensor_of(const std::vector<int64_t>& values, at::IntArrayRef shape) {
  return torch::tensor(values, torch::kInt64).view(shape);
}

inline MicroBatch micro_batch(const HashedBatch& batch, int64_t sequences, int64_t seq_len) {
  return {.rows = sequences,
          .fields = {tensor_of(batch.inputs, {sequences, seq_len}), tensor_of(batch.targets, {sequences, seq_len})}};
}

struct TestModel {
  explicit TestModel(const Recipe::Model& recipe, Weights weights = Weights::seeded, int64_t vocab_size = 96,
                     int64_t seq_len = 16, torch::ScalarType dtype = torch::kFloat32,
                     RowKind rows = RowKind::one_sequence)
      : model(build_model(recipe, make_spec(recipe, vocab_size, seq_len, rows))) {
    auto parameters = model->spec.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto& parameter = *parameters[i];
      std::vector<float> values;
      if (weights == Weights::hashed) {
        values = hashed_values(parameter);
      } else {
        values.resize(static_cast<size_t>(parameter.numel()));
        initialize_slice(parameter, 7, 0, values);
      }
      model->slots[i] = torch::tensor(values).view(parameter.shape).to(dtype).requires_grad_(true);
    }
  }

  torch::Tensor& operator[](const std::string& name) { return model->slots[model->spec.slot(name)]; }

  /// The summed loss of one micro-batch.
  torch::Tensor loss(const MicroBatch& batch, bool training = true, uint64_t dropout_key = 1) {
    ForwardContext context{&batch, training, dropout_key};
    torch::Tensor x;
    for (auto& block : model->blocks) x = block->forward(x, context);
    return x;
  }

  void clear_gradients() {
    for (auto& slot : model->slots) slot.mutable_grad() = torch::Tensor();
  }

  std::unique_ptr<Model> model;
};

inline MicroBatch small_batch(int64_t sequences = 3, int64_t seq_len = 16, int64_t vocab_size = 96) {
  return micro_batch(hashed_batch(0, sequences, seq_len, vocab_size), sequences, seq_len);
}

/// Largest difference, relative to the largest element of `expected`.
inline double relative_error(const torch::Tensor& actual, const torch::Tensor& expected) {
  auto wide = expected.to(torch::kFloat64);
  return (actual.to(torch::kFloat64) - wide).abs().max().item<double>() /
         std::max(wide.abs().max().item<double>(), 1e-30);
}

}  // namespace runner::testing
