// The tokenizer of a stored model.
#pragma once
#include <memory>
#include <string>

#include "runner/checkpoint/stored_model.hpp"
#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

/// Opens the tokenizer that the model was trained with. `cache_dir`: of tokenizers that are trained. Throws Error(usage) if it is missing,
/// or has changed since the training: its ids would mean other tokens.
std::unique_ptr<Tokenizer> open_model_tokenizer(const StoredModel& model, const std::string& cache_dir);

}  // namespace runner
