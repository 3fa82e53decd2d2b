// The tokenizer in a GGUF file's metadata as the files of a Hugging Face folder. Torch-free.
#pragma once
#include "runner/pretrained/gguf_file.hpp"

namespace runner {

/// The content of tokenizer.json; empty if the file's tokenizer is of another kind, or if there is none. Throws Error(usage), with the
/// path, for a tokenizer that is not supported.
std::string gguf_tokenizer_json(const GgufFile& file);
/// tokenizer_config.json: special tokens, chat templates, and whether a BOS precedes a text.
nlohmann::json gguf_tokenizer_config(const GgufFile& file);

}  // namespace runner
