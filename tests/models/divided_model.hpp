// A model that ranks of a tensor axis divide, and the same model of one rank: losses and gradients of complete parameters.
#pragma once
#include "strategies/contract/tensor_axis.hpp"
#include "test_model.hpp"
#include "tests/support/mixed_precision.hpp"
#include "tests/support/thread_world.hpp"

namespace runner::testing {

/// How a test runs a model.
struct DividedRun {
  Recipe::Model recipe;
  int ranks = 2;
  bool sequence_parallel = true;
  MicroBatch batch = {};
  RowKind rows = RowKind::one_sequence;
  int64_t vocabulary = 61, seq_len = 11;
  torch::ScalarType dtype = torch::kFloat64;
  bool mixed = false;       ///< MixedPrecision
  bool recomputes = false;  ///< blocks before the head run without a graph, and then again without their last product
  const TokenLoss* token_loss = nullptr;
  std::optional<int64_t> logits_of = {};
  Recipe::FineTune fine_tune = {};
};

/// The result: a loss or logits, and the gradients of all parameters.
struct Outcome {
  torch::Tensor result;
  std::vector<torch::Tensor> gradients;
};

inline ModelSpec spec_of(const DividedRun& run, const TensorDivision& division = {},
                         const ContextDivision& context = {}) {
  if (!run.fine_tune.adapts()) return make_spec(run.recipe, run.vocabulary, run.seq_len, run.rows, division, context);
  Recipe recipe;
  recipe.model = run.recipe;
  recipe.fine_tune = run.fine_tune;
  return make_spec(recipe, run.vocabulary, run.seq_len, division, context);
}

/// All values of a parameter. Parameters that start with zeros or ones have other values, which show more.
inline torch::Tensor whole_values(const ParameterSpec& parameter) {
  auto spec = parameter;
  spec.init = {.kind = Init::Kind::normal, .std = 0.2};
  std::vector<float> values(static_cast<size_t>(spec.numel()));
  initialize_slice(spec, 7, 0, values);
  return torch::tensor(values).to(torch::kFloat64).add_(parameter.init.kind == Init::Kind::ones ? 1 : 0);
}

/// The part that a rank has of a flattened complete parameter.
inline torch::Tensor part_of(const torch::Tensor& whole, const ParameterSpec& parameter) {
  auto part = torch::empty({parameter.numel()}, whole.options());
  for_each_run(parameter, 0, parameter.numel(), [&](int64_t in_whole, int64_t local, int64_t count) {
    part.narrow(0, local, count).copy_(whole.narrow(0, in_whole, count));
  });
  return part.view(parameter.shape);
}

/// The forward and the backward of all blocks, as BlockGraphs runs them.
inline Outcome outcome_of(Model& model, const DividedRun& run, ForwardContext context) {
  Outcome outcome;
  const auto forward = [&](size_t block, const torch::Tensor& input) {
    const MixedPrecision mixed(run.mixed);
    return model.blocks[block]->forward(input, context);
  };
  const size_t head = model.blocks.size() - 1;
  std::vector<torch::Tensor> inputs(model.blocks.size());
  torch::Tensor x;
  for (size_t b = 0; b < head; ++b) {
    torch::AutoGradMode records(!run.recomputes && !run.logits_of);
    inputs[b] = x;
    x = forward(b, x);
  }
  if (run.logits_of) {
    torch::NoGradGuard no_grad;
    return {.result = forward(head, x), .gradients = {}};
  }
  if (!run.recomputes) {
    outcome.result = forward(head, x);
    outcome.result.backward();
  } else {
    x = x.detach().requires_grad_(true);
    outcome.result = forward(head, x);
    outcome.result.backward();
    context.recomputes = context.output_unused = true;
    for (size_t b = head; b-- > 0;) {
      auto input = b > 0 ? inputs[b].detach().requires_grad_(true) : torch::Tensor();
      const auto output = forward(b, input);
      if (output.requires_grad()) output.backward(x.grad());
      x = input;
    }
  }
  outcome.result = outcome.result.detach();
  for (const auto& slot : model.slots) outcome.gradients.push_back(slot.grad());
  return outcome;
}

/// A rank's model, with its parts of the parameters.
inline std::unique_ptr<Model> filled_model(const DividedRun& run, const ModelSpec& spec) {
  const auto whole = spec_of(run);
  auto model = build_model(run.recipe, spec);
  const auto parameters = model->spec.parameters();
  for (size_t i = 0; i < parameters.size(); ++i)
    model->slots[i] = part_of(whole_values(*whole.parameters()[i]), *parameters[i])
                          .to(run.dtype)
                          .requires_grad_(parameters[i]->trainable);
  return model;
}

inline Outcome outcome_of(const DividedRun& run, const ModelSpec& spec, const TensorAxis* axis = nullptr) {
  return outcome_of(*filled_model(run, spec), run,
                    {.batch = &run.batch,
                     .dropout_key = 3,
                     .first_row = 2,
                     .token_loss = run.token_loss,
                     .logits_of = run.logits_of,
                     .tensor_axis = axis});
}

inline Outcome outcome_on_one_rank(const DividedRun& run) { return outcome_of(run, spec_of(run)); }

/// The outcome of each rank, with gradients of its parts.
inline std::vector<Outcome> outcomes_on_ranks(const DividedRun& run) {
  std::vector<Outcome> outcomes(static_cast<size_t>(run.ranks));
  run_ranks(run.ranks, [&](World& world) {
    const TensorDivision division{.ranks = run.ranks, .rank = world.rank, .sequence_parallel = run.sequence_parallel};
    const TensorAxis axis(world.group, division);
    outcomes[static_cast<size_t>(world.rank)] = outcome_of(run, spec_of(run, division), &axis);
  });
  return outcomes;
}

/// A complete gradient from those of the ranks' parts. `differ` gets the number of replicas whose gradients should have the same bits, but
/// do not.
inline torch::Tensor whole_gradient(const DividedRun& run, const std::vector<Outcome>& outcomes, size_t slot,
                                    int& differ) {
  const auto whole = spec_of(run);
  const auto& shape = whole.parameters()[slot]->shape;
  auto sum = torch::zeros({whole.parameters()[slot]->numel()}, run.dtype);
  std::map<int64_t, torch::Tensor> first;  // the gradient of replica 0, by its first element
  for (int rank = 0; rank < run.ranks; ++rank) {
    const auto spec = spec_of(run, {.ranks = run.ranks, .rank = rank, .sequence_parallel = run.sequence_parallel});
    const auto& parameter = *spec.parameters()[slot];
    const auto gradient = outcomes[static_cast<size_t>(rank)].gradients[slot].flatten();
    const auto& part = *parameter.part;
    const auto group = rank - part.replica;
    if (part.replica == 0) first[group] = gradient;
    if (!part.sums_replicas && part.replica > 0) {
      differ += !torch::equal(gradient, first[group]);
      continue;
    }
    for_each_run(parameter, 0, parameter.numel(), [&](int64_t in_whole, int64_t local, int64_t count) {
      sum.narrow(0, in_whole, count).add_(gradient.narrow(0, local, count));
    });
  }
  return sum.view(shape);
}

}  // namespace runner::testing
