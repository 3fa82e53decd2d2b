// Mistakes in [data], notes about it and its amount, found before a run starts.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

/// A mistake in [data]: the dotted key that it belongs to, and what is wrong.
struct DataProblem {
  std::string key, message;
};
/// Finds mistakes without tokenising, for `runner check` and before a run is recorded: missing or empty files, patterns
/// without matches, a tokenizer that cannot be read, too few tokens for one sample of each split. "bin" files, and text
/// with the tokenizer "bytes", are opened as by open_dataset(). Of text for a SentencePiece model, only the size is
/// checked. Empty: no mistakes. `vocab_size`: the model's.
std::vector<DataProblem> find_data_problems(const Recipe::Data& data, int64_t seq_len, int64_t vocab_size,
                                            const std::string& cache_dir);
/// The mistakes that find_data_problems() finds without `seq_len` and the vocabulary.
std::vector<DataProblem> find_missing_data(const Recipe::Data& data);
/// Notes about data that are valid, but probably not intended: text files that look like JSON lines, or for whose
/// characters the tokenizer has no tokens.
std::vector<std::string> data_notes(const Recipe::Data& data);
/// The amount of data, e.g. "3 files with 8713 samples of 128 tokens, and 968 to validate". Of text that is not
/// tokenised yet, the size in bytes. `tokenized`: prepare_data() has run.
std::string data_summary(const Recipe::Data& data, int64_t seq_len, int64_t vocab_size, const std::string& cache_dir,
                         bool tokenized);

}  // namespace runner
