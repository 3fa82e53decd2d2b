// The blocks of models in float64, as a program: loss, gradients, statistics and the sums of a validation are those of LibTorch. This
// includes models that the strategies on XLA refuse.
#include <catch2/catch_test_macros.hpp>

#include "tests/support/tiny_training.hpp"
#include "tests/xla/run_traced.hpp"

namespace runner::testing {

namespace {

torch::Tensor field_tensor(const HostBatch& batch, size_t field) {
  const auto& [spec, bytes] = batch.fields[field];
  std::vector<int64_t> shape{batch.rows};
  shape.insert(shape.end(), spec.row.begin(), spec.row.end());
  const auto type = spec.type == ElementType::float32 ? torch::kFloat32 : torch::kInt64;
  return torch::from_blob(const_cast<std::byte*>(bytes.data()), shape, type).clone();
}

/// A model whose parameters, buffers and batch are the inputs of a function.
class BlockRun {
 public:
  explicit BlockRun(const TinyRun& run) : spec_(tiny_spec(run)), model_(build_model(tiny_model(run), spec_)) {
    const auto parameters = spec_.parameters();
    for (const auto* parameter : parameters) {
      std::vector<float> values(static_cast<size_t>(parameter->numel()));
      initialize_slice(*parameter, 7, 0, values);
      inputs_.push_back(torch::tensor(values).to(torch::kFloat64).view(parameter->shape).requires_grad_(true));
    }
    for (const auto& buffer : spec_.buffers)
      inputs_.push_back(torch::linspace(0.5, 1.5, buffer.numel(), torch::kFloat64).view(buffer.shape));
    const auto batch = tiny_batch(run, 0, rows);
    for (size_t i = 0; i < batch.fields.size(); ++i) inputs_.push_back(field_tensor(batch, i));
  }

  const Tensors& inputs() const { return inputs_; }

  /// The loss and statistics; in validation, the sums.
  TensorFunction function(bool training) {
    return [this, training](const Tensors& inputs) {
      auto next = inputs.begin();
      for (size_t slot = 0; slot < model_->slots.size(); ++slot) model_->place(slot, *next++);
      model_->buffers.assign(next, next + std::ssize(spec_.buffers));
      MicroBatch batch{.rows = rows};
      batch.fields.assign(next + std::ssize(spec_.buffers), inputs.end());
      batch.host_fields.resize(batch.fields.size());
      const ForwardContext context{.batch = &batch, .training = training};
      const torch::AutoGradMode gradients(training);
      torch::Tensor x;
      for (auto& block : model_->blocks) x = block->forward(x, context);
      Tensors results{x};
      for (size_t buffer = 0; training && buffer < spec_.buffers.size(); ++buffer)
        results.push_back(model_->statistics.of(buffer).first);
      model_->statistics.clear();
      return results;
    };
  }

 private:
  static constexpr int64_t rows = 6;
  ModelSpec spec_;
  std::unique_ptr<Model> model_;
  Tensors inputs_;
};

void check_blocks(const TinyRun& run, size_t least_results) {
  BlockRun blocks(run);
  for (const bool training : {true, false}) {
    INFO(run.family << " " << run.layer_type << " " << run.loss << (training ? ", training" : ", validation"));
    const auto function = with_gradients(blocks.function(training));
    const auto expected = function(blocks.inputs()), found = run_traced(function, blocks.inputs()).outputs;
    REQUIRE(found.size() == expected.size());
    CHECK(found.size() >= (training ? least_results : 1));
    for (size_t i = 0; i < found.size(); ++i) {
      INFO("result " << i);
      REQUIRE(found[i].sizes() == expected[i].sizes());
      const auto tolerance = expected[i].scalar_type() == torch::kFloat64 ? 1e-10 : 1e-5;
      const auto apart = (found[i] - expected[i]).abs().max().item<double>();
      CHECK(apart <= tolerance * std::max(1.0, expected[i].abs().max().item<double>()));
    }
  }
}

}  // namespace

TEST_CASE("blocks of vision models are compiled", "[xla][blocks]") {
  TinyRun run;
  run.n_layers = 1;
  run.vocab = 7;
  run.family = "resnet";
  for (const char* layer : {"basic", "bottleneck"}) {
    run.layer_type = layer;
    check_blocks(run, 20);
  }
  run.family = "vit";
  check_blocks(run, 15);
  run.mixes = true;
  check_blocks(run, 15);
}

TEST_CASE("losses of labels and numbers are compiled", "[xla][blocks]") {
  TinyRun run;
  run.family = "mlp";
  run.n_layers = 1;
  for (const char* loss : {"cross_entropy", "bce", "mse", "l1", "huber"})
    for (const int64_t outputs : {2, 7}) {
      run.loss = loss;
      run.vocab = outputs;
      check_blocks(run, 5);
    }
}

}  // namespace runner::testing
