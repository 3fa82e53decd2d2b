// The weights of a run's model, as its checkpoint and the folder that it started from contain them. Torch-free.
#pragma once
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/checkpoint/hf.hpp"

namespace runner {

/// The model's spec. vocab_size and seq_len come from the trainer's state, because the tokenizer and the data may have determined
/// them. Throws Error(environment) if the state has none.
ModelSpec spec_of(const Recipe& recipe, const Checkpoint& checkpoint);

/// Returns a reader of the parameters `place` + NAME as floats, by the slots of `spec`. Those that checkpoints do not contain are read
/// by `base`. Throws Error(environment) if a parameter is missing or has the wrong shape.
ParameterReader parameter_reader(const Checkpoint& checkpoint, const ModelSpec& spec, const std::string& place,
                                 const ParameterReader& base);

/// Returns a parameter_reader() of the weights that the run's model has in evaluations: the parameters, or their average if the optimizer
/// averages (OptimizerSpec::averages).
ParameterReader model_reader(const Recipe& recipe, const Checkpoint& checkpoint, const ModelSpec& spec,
                             const ParameterReader& base);

/// A reader of the weights that training started from, by the slots of `spec`; empty if checkpoints contain all parameters. Weights that
/// were stored in NF4 are dequantized. `base`: the spec without adapters. Throws Error(environment) if the folder is missing or has
/// other weights now.
ParameterReader base_reader(const Recipe& recipe, const ModelSpec& spec, const ModelSpec& base,
                            const Checkpoint& checkpoint);

}  // namespace runner
