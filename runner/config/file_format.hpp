// Recognises files of another format than the one that a reader needs: TOML, JSON, YAML and Lua.
#pragma once
#include <string>

namespace runner {

enum class FileFormat { toml, json, lua, yaml };

/// A sentence about the format that the file seems to have instead of `wanted`, and the command that reads it. Empty if it may be what is
/// wanted. The first character of `text` counts more than the suffix of `file`.
std::string wrong_format(FileFormat wanted, const std::string& file, const std::string& text);

/// A line for Origin::excerpt. Each value of a file has one, so a very long line is left out.
std::string excerpt_of(std::string line);

}  // namespace runner
