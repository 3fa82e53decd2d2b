// What a position in the training data means: a checkpoint keeps it, and a run that goes on compares.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

/// The keys that decide which tokens the sample at a position has, and digests of the files of data.train:
///   {"data.seq_len", "data.shuffle", "run.seed" (with shuffle), "data.format", "data.tokenizer", "data.token_dtype",
///    "data.validation_fraction", "files": [{"path", "bytes", "xxh3"}], "global_batch_size"}
/// Files of up to `hashed_bytes` together are hashed whole. Of more, evenly spaced blocks that add up to as much are: a
/// file that was replaced, cut or sorted anew is noticed, an edit of a few bytes in place perhaps not. Digests are kept
/// in `cache_dir` until a file's size, inode or times change. Throws Error(environment) where a file cannot be read.
nlohmann::json data_meaning(const Recipe& recipe, int64_t global_batch_size, const std::string& cache_dir,
                            size_t hashed_bytes = size_t{1} << 30);

/// What differs in a way that gives a position another meaning, one sentence each; `before` may lack keys. The number
/// of sequences in a step is not among them: positions count sequences.
std::vector<std::string> changed_meaning(const nlohmann::json& before, const nlohmann::json& now);

}  // namespace runner
