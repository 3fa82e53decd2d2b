// Checks and identifies the data files of a recipe, and recognises those that are not what data.format says.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/files.hpp"

namespace runner {

/// Why `files` cannot be data: there is none, or one is missing, empty or not a regular file. One sentence per file, which begins
/// with `key`, the recipe's key. For a missing file, it ends with the nearest name in the folder.
std::vector<std::string> source_file_problems(const std::string& key, const std::vector<std::string>& files);

/// Throws Error(usage) with all source_file_problems().
void check_source_files(const std::string& key, const std::vector<std::string>& files);

/// The source_file_problems() of the paths that a plug-in opens, which may also be folders.
std::vector<std::string> source_path_problems(const std::string& key, const std::vector<std::string>& paths);
void check_source_paths(const std::string& key, const std::vector<std::string>& paths);

/// The files of these paths: a folder stands for all files below it, in order of their paths.
std::vector<std::string> files_of(const std::vector<std::string>& paths);

/// The existing file in `path`'s folder whose name is nearest to `path`'s, if one is near.
std::optional<std::string> nearest_file(const fs::path& path);

/// Identifies the state of the files, and of those in folders: absolute path, size and modification time of each, in order.
std::string fingerprint(const std::vector<std::string>& paths);

/// The kind of a file that is not text, and what to do with it, e.g. "a gzip file: unpack it first". Empty for text.
std::string other_than_text(const std::string& file);
/// Why training on this text is probably not what the user wants: it is JSON, a table or HTML. Empty for other texts.
std::string doubtful_text(const std::string& file);

/// The kind of a file that is neither raw tokens nor a file of llm.c, and what to do with it. Empty for tokens.
std::string other_than_tokens(const std::string& file);
/// The type that the tokens of a raw file seem to have, if it is wider than `item_bytes` (2 or 4): "uint32" or "int64".
/// Wider integers, read as narrow ones, have nearly only zeros at the places of their high halves. Otherwise empty.
std::string wider_tokens(const std::string& file, size_t item_bytes);

}  // namespace runner
