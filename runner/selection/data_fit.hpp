// Whether the data fit the model: sequence lengths, the size of the vocabulary, and the fields of a batch.
#pragma once
#include <vector>

#include "runner/selection/plan.hpp"

namespace runner {

/// Appends to `diagnostics` if samples are longer than model.max_seq_len, or if "bin" data have no vocabulary size.
void check_lengths(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

/// Sets the lengths and the size of the vocabulary of the plan, and in its recipe those that follow from others. `tokenizer_vocab`: the
/// tokenizer's, if the data have one.
void resolve_lengths(Plan& plan, std::optional<int64_t> tokenizer_vocab, std::vector<Diagnostic>& diagnostics);

/// Appends a mistake and returns false if the recipe's micro-batch, or one sequence, has more tokens than micro_batch_tokens_most. `part`:
/// what a rank has of the model.
bool check_micro_batch(const Recipe& recipe, const ModelSpec& part, std::vector<Diagnostic>& diagnostics);

/// Appends a mistake if `provided`, the fields of the recipe's data, lack fields of `model`.
void check_batch_fields(const Recipe& recipe, const ModelSpec& model, const std::vector<BatchField>& provided,
                        std::vector<Diagnostic>& diagnostics);

}  // namespace runner
