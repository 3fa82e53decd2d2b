// The values that determine which samples a position in the training data means. Checkpoints store them; resumed runs compare them.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"

namespace runner {

/// The keys that determine the tokens of the sample at a position, and digests of the files of data.train:
///   {"data.seq_len", "data.shuffle", "run.seed" (with shuffle), "data.format", "data.tokenizer", "data.token_dtype",
///    "data.validation_fraction", for records those of RecordReader::settings(), "data.packing" and "data.too_long", with
///    [[data.sources]] "data.sources", "data.temperature" and "data.mixture_end", "files": [{"path", "bytes", "xxh3"}],
///    "global_batch_size", and for records "the version of targets": targets_version}
/// All bytes are hashed if the files have at most `hashed_bytes` together. Otherwise evenly spaced blocks with this total size
/// are hashed: this detects a file that was replaced, truncated or sorted, but not always an edit of a few bytes. Digests are
/// cached in `cache_dir` until a file's size, inode or times change. Throws Error(environment) if a file cannot be read.
nlohmann::json data_meaning(const Recipe& recipe, int64_t global_batch_size, const std::string& cache_dir,
                            size_t hashed_bytes = size_t{1} << 30);

/// Changes with the validation data: {"data.validation": digests as above}, of images only a digest of their names and sizes. Empty
/// without data.validation. Checkpoints have it beside data_meaning(); positions do not depend on it.
nlohmann::json validation_meaning(const Recipe::Data& data, const std::string& cache_dir,
                                  size_t hashed_bytes = size_t{1} << 30);

/// Says that records get other targets than in the run that stored `before`; empty if not. `now`: data_meaning().
std::string older_targets_note(const nlohmann::json& before, const nlohmann::json& now, const Recipe::Data& data,
                               const std::string& cache_dir);

/// [{"path", "bytes", "xxh3"}] of the file model.init_from, or of all files below this folder, from parts of 64 MiB together, cached as
/// above.
nlohmann::json weight_digests(const std::string& init_from, const std::string& cache_dir);

/// A short form of data_meaning() for the record of a run, which changed_meaning() compares too: of more than 1000 files only
/// {"count", "bytes", "xxh3"} of all together.
nlohmann::json short_meaning(nlohmann::json meaning);

/// Whether another value of this recipe key gives a position in the data of `recipe` another meaning.
bool changes_meaning(const Recipe& recipe, const std::string& key);

/// The differences that change the meaning of a position, one sentence each. `before` may lack keys. global_batch_size is not
/// compared, because positions count sequences, nor is targets_version.
std::vector<std::string> changed_meaning(const nlohmann::json& before, const nlohmann::json& now);

}  // namespace runner
