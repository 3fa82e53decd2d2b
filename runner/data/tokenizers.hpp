// Opens the tokenizer that a recipe names (runner/tokenizers has the tokenizers).
#pragma once
#include "runner/base/files.hpp"
#include "runner/data/data.hpp"

namespace runner {

/// The tokenizer that `data.tokenizer` names: "bytes", a file or folder, or "sentencepiece": a model that is trained once on
/// the training data and cached in `cache_dir`. Throws Error(usage) that begins with "data.tokenizer", or Error(environment).
std::unique_ptr<Tokenizer> open_tokenizer(const Recipe::Data& data, const std::string& cache_dir);
/// The model of the tokenizer "sentencepiece", trained if it is not in `cache_dir`.
fs::path trained_sentencepiece(const Recipe::Data& data, const std::string& cache_dir);

}  // namespace runner
