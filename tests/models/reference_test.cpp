// The modules reproduce PyTorch's losses over 20 AdamW steps (make_reference.py made the tables).
#include "test_model.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::WithinAbs;

namespace {

/// torch.optim.AdamW(fused=True) over all slots.
class FusedAdamW {
 public:
  FusedAdamW(std::vector<torch::Tensor>& parameters, const ReferenceRun& run) : parameters_(parameters), run_(run) {
    for (auto& parameter : parameters) {
      exp_avgs_.push_back(torch::zeros_like(parameter));
      exp_avg_sqs_.push_back(torch::zeros_like(parameter));
      steps_.push_back(torch::zeros({}));
    }
  }

  void step() {
    torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> gradients;
    for (auto& parameter : parameters_) gradients.push_back(parameter.grad());
    for (auto& step : steps_) step.add_(1);
    at::_fused_adamw_(parameters_, gradients, exp_avgs_, exp_avg_sqs_, {}, steps_, run_.lr, run_.beta1, run_.beta2,
                      run_.weight_decay, run_.eps, /*amsgrad=*/false, /*maximize=*/false);
  }

 private:
  std::vector<torch::Tensor>& parameters_;
  const ReferenceRun& run_;
  std::vector<torch::Tensor> exp_avgs_, exp_avg_sqs_, steps_;
};

}  // namespace

TEST_CASE("20 AdamW steps give PyTorch's losses for each stored table", "[reference]") {
  auto name = GENERATE("gpt", "gpt_untied", "llama", "llama_tied", "peer_tiny");
  auto chunk_tokens = GENERATE(0, 48);
  if (chunk_tokens && std::string(name).starts_with("peer")) return;
  CAPTURE(name, chunk_tokens);
  auto run = load_reference(RUNNER_SOURCE_DIR, name);
  run.model.loss_chunk_tokens = chunk_tokens;
  TestModel model(run.model, Weights::hashed, run.vocab_size, run.seq_len);
  FusedAdamW optimizer(model.model->slots, run);
  for (size_t step = 0; step < run.losses.size(); ++step) {
    auto rows = hashed_batch(static_cast<int64_t>(step), run.sequences, run.seq_len, run.vocab_size);
    auto mean =
        model.loss(micro_batch(rows, run.sequences, run.seq_len)) / static_cast<double>(run.sequences * run.seq_len);
    mean.backward();
    double loss = mean.item<double>();
    optimizer.step();
    model.clear_gradients();
    CAPTURE(step);
    CHECK_THAT(loss, WithinAbs(run.losses[step], 2e-6));
  }
}
