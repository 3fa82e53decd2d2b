// How a folder of sentence-transformers makes embeddings of texts: modules.json and the files that it names. Torch-free.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "runner/base/files.hpp"

namespace runner {

struct SentenceSettings {
  std::string pooling = "";                    ///< mean, cls or last; empty: the folder does not say it
  bool normalize = false;                      ///< to length 1
  std::optional<int64_t> max_seq_length = {};  ///< in tokens
  bool lower_case = false;                     ///< texts become lower case before the tokenizer
  std::string prompt = "";                     ///< is put before each text
};

/// Reads modules.json, with `reads_pooling` the config.json of its pooling, sentence_bert_config.json, and the default prompt in
/// config_sentence_transformers.json. Without modules.json, the defaults. Throws
/// Error(usage) with the file for a pooling or module that is not supported.
SentenceSettings sentence_settings(const fs::path& folder, bool reads_pooling);

}  // namespace runner
