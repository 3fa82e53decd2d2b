// The text files of a pretrained model: config.json, tokenizer.json and others in a Hugging Face folder. A GGUF file is read as such a
// folder: the path "model.gguf/config.json" names what its metadata say. Torch-free.
#pragma once
#include <string>

#include "runner/base/files.hpp"

namespace runner {

/// A folder, or a GGUF file.
bool is_model_folder(const fs::path& path);
/// Whether the path is a file, or one that the metadata of a GGUF file contain: config.json, tokenizer.json or tokenizer_config.json.
/// Throws Error(usage) for a damaged file, and for metadata that are not supported.
bool has_model_file(const fs::path& path);
/// The content of a file as has_model_file() finds it. Throws as has_model_file(), also Error(usage) if a GGUF file has no such file.
std::string read_model_file(const fs::path& path);
/// The way to install a missing file that a shipped recipe names, for the end of a message; empty for other files.
std::string setup_hint(const fs::path& path);
/// The file on disk that a path is in: the GGUF file, or the path itself.
fs::path file_on_disk(const fs::path& path);

}  // namespace runner
